// Much for a compiler to do.
use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;

trait Walk: Debug {
    fn walk(&mut self, x: u64) -> u64;
}

macro_rules! trees {
    ($($name:ident $n:expr),*) => {$(
        #[derive(Debug, Default)]
        struct $name {
            names: BTreeMap<u64, String>,
            places: HashMap<String, Vec<u64>>,
            more: Vec<Option<(u64, String)>>,
        }
        impl Walk for $name {
            fn walk(&mut self, x: u64) -> u64 {
                let name = self.names.entry(x % $n).or_default();
                name.push_str(&format!("{x:?}-{}", $n));
                self.places.entry(name.clone()).or_default().push(x);
                self.more.push(Some((x, name.clone())));
                self.more.sort_by_key(|one| one.as_ref().map(|(x, name)| (x % $n, name.len())));
                for place in self.places.values_mut() {
                    place.sort_unstable_by(|a, b| (b % $n).cmp(&(a % $n)));
                    place.dedup();
                }
                let longest = self.places.iter().map(|(name, place)| name.len() * place.len()).max();
                longest.map_or(x, |length| x.wrapping_mul(31) + length as u64)
            }
        }
    )*
        fn all() -> Vec<Box<dyn Walk>> { vec![$(Box::new($name::default())),*] }
    };
}

trees!(A 3, B 5, C 7, D 11, E 13, F 17, G 19, H 23, I 29, J 31);

fn main() {
    let mut x = std::env::args().count() as u64;
    let mut trees = all();
    for _ in 0..1000 {
        for tree in &mut trees {
            x = tree.walk(x);
        }
    }
    println!("{x} {trees:?}");
}

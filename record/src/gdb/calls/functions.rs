//! The functions whose calls are followed: from names to addresses, by the symbols of the guest's images.

use crate::elf::Image;
use crate::source::SourceError;
use std::path::Path;

/// Most functions of a trace.
pub const MOST_FUNCTIONS: usize = 64;
/// Bytes of a function that the guest must have where the image has them.
const CODE_BYTES: usize = 16;

/// A function whose calls are followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Its name, as asked for.
    pub name: String,
    /// Where it begins in the guest.
    pub address: u64,
    /// What the image has there.
    pub code: Vec<u8>,
    /// Whether its calls are still followed.
    pub is_on: bool,
    image: String,
}

impl Function {
    /// Why the guest, which has `seen` at the function's address, doesn't have the function there.
    pub fn problem(&self, seen: &[u8]) -> Option<String> {
        let Function {
            name,
            address,
            image,
            ..
        } = self;
        if self.code == seen {
            return None;
        }
        Some(format!(
            "the guest does not have {name} of {image} at {address:#x}: is it the guest's image? If it was moved as \
             it was loaded, give its place (--elf {image}@ADDRESS; `uniprof doctor --elf {image} TARGET` finds it)"
        ))
    }
}

/// The functions of `names` in `images`: all that have such a name.
///
/// # Errors
/// Which are not found, or that there are too many.
pub fn find(images: &[Image], names: &[String]) -> Result<Vec<Function>, SourceError> {
    if images.is_empty() {
        return Err(SourceError(
            "--calls needs the guest's image, where functions are found by name: give it with --elf".into(),
        ));
    }
    let too_many = |count: usize| {
        SourceError(format!(
            "{count} functions have these names, and the calls of at most {MOST_FUNCTIONS} can be followed; name fewer"
        ))
    };
    if names.len() > MOST_FUNCTIONS {
        return Err(too_many(names.len()));
    }
    let mut functions: Vec<Function> = Vec::new();
    for image in images {
        for (index, address) in image.functions(names) {
            let is_new = functions.iter().all(|known| known.address != address);
            if is_new {
                functions.push(Function {
                    name: names[index].clone(),
                    address,
                    code: image.text_at(address, CODE_BYTES).unwrap_or_default(),
                    is_on: true,
                    image: image.path.display().to_string(),
                });
            }
        }
    }
    let is_missing = |name: &&String| functions.iter().all(|known| known.name != **name);
    let missing: Vec<&str> = names
        .iter()
        .filter(is_missing)
        .map(String::as_str)
        .collect();
    if !missing.is_empty() {
        return Err(SourceError(format!(
            "no function {} in {}: names are those of the symbol table, as `nm` prints them",
            missing.join(", "),
            list(images.iter().map(|image| image.path.as_path())),
        )));
    }
    if functions.len() > MOST_FUNCTIONS {
        return Err(too_many(functions.len()));
    }
    Ok(functions)
}

fn list<'a>(paths: impl Iterator<Item = &'a Path>) -> String {
    let paths = paths.map(|path| path.display().to_string());
    paths.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(names: &[&str]) -> Result<Vec<Function>, String> {
        let image = Image::open(&std::env::current_exe().unwrap(), None).unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        find(&[image], &names).map_err(|error| error.0)
    }

    #[test]
    fn functions_are_found_by_name_or_refused() {
        let main = &found(&["main"]).unwrap()[0];
        assert_eq!(main.code.len(), CODE_BYTES);
        assert_eq!(main.problem(&main.code), None);
        assert!(
            main.problem(&[0; CODE_BYTES])
                .unwrap()
                .contains("does not have main of")
        );
        let error = found(&["main", "nobody", "no_one"]).unwrap_err();
        assert!(
            error.starts_with("no function nobody, no_one in"),
            "{error}"
        );
        assert!(find(&[], &[]).is_err());
    }

    #[test]
    fn functions_of_a_trace_up_to_the_last_and_past_it() {
        let names = ["main"; MOST_FUNCTIONS + 1];
        assert_eq!(found(&names[1..]).unwrap().len(), 1);
        let error = found(&names).unwrap_err();
        assert!(
            error.contains("65 functions have these names, and the calls of at most 64"),
            "{error}"
        );
    }
}

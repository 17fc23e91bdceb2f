//! Images that were refused, or used against an objection. Input: one for each module. Output: a warning for each
//! objection, however many images it is to: a recorder that may not open files may have hundreds.

use std::collections::BTreeMap;

/// Most names that a warning lists.
const NAMES_LISTED: usize = 5;

/// An objection to an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// The image's name.
    pub image: String,
    /// Whether it was used anyway, by request.
    pub is_used: bool,
    /// Why it may not be the image of its module.
    pub objection: String,
}

impl Mismatch {
    /// The warnings, in order of their first image.
    pub(crate) fn warnings<'m>(all: impl Iterator<Item = &'m Mismatch>) -> Vec<String> {
        let mut order: Vec<(&str, bool)> = Vec::new();
        let mut images: BTreeMap<(&str, bool), Vec<&str>> = BTreeMap::new();
        for mismatch in all {
            let key = (mismatch.objection.as_str(), mismatch.is_used);
            let list = images.entry(key).or_default();
            if list.is_empty() {
                order.push(key);
            }
            if !list.contains(&mismatch.image.as_str()) {
                list.push(&mismatch.image);
            }
        }
        let warning = |key: (&str, bool)| {
            let (list, (objection, is_used)) = (&images[&key], key);
            let verb = if is_used { "used" } else { "not used" };
            match list[..] {
                [image] => format!("{image} is {verb}: {objection}"),
                _ => format!("{} are {verb}: of each, {objection}", listed(list)),
            }
        };
        order.into_iter().map(warning).collect()
    }
}

/// The first names of a list, and how many more there are.
pub(crate) fn listed(names: &[&str]) -> String {
    let first = names[..names.len().min(NAMES_LISTED)].join(", ");
    match names.len().saturating_sub(NAMES_LISTED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_objection_to_many_images_is_one_warning() {
        let mismatch = |number: usize, objection: &str| Mismatch {
            image: format!("/lib/{number}.so"),
            is_used: false,
            objection: objection.to_owned(),
        };
        let mut all: Vec<Mismatch> = (0..118)
            .map(|number| mismatch(number, "no proof"))
            .collect();
        all.push(mismatch(0, "no proof"));
        all.push(mismatch(200, "other build"));
        let names: Vec<String> = (0..5).map(|number| format!("/lib/{number}.so")).collect();
        let expected = [
            format!(
                "{} and 113 more are not used: of each, no proof",
                names.join(", ")
            ),
            "/lib/200.so is not used: other build".to_owned(),
        ];
        assert_eq!(Mismatch::warnings(all.iter()), expected);
    }
}

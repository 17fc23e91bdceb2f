//! The functions whose calls are followed: from names to addresses, by the symbols of the guest's images.

use crate::elf::Image;
use crate::guest::linux::Linux;
use crate::source::SourceError;

/// Most functions of a trace.
pub const MOST_FUNCTIONS: usize = 64;
/// Number of a function's first bytes that guest and image must share.
const CODE_BYTES: usize = 16;

/// A function whose calls are followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Its name, as requested.
    pub name: String,
    /// Its first address in the guest.
    pub address: u64,
    /// The image's bytes at this address.
    pub code: Vec<u8>,
    /// Whether its calls are still followed.
    pub is_on: bool,
    /// Index of its image, among those that were searched; `None` for the kernel's own symbols.
    pub image: Option<usize>,
}

impl Function {
    /// The error for a function whose code in the guest differs from its image.
    pub fn refusal(&self, images: &[Image]) -> SourceError {
        let image = self.image.and_then(|image| images.get(image));
        let image = image.map_or(String::new(), |image| image.path.display().to_string());
        SourceError(format!(
            "the guest does not have {} of {image} at {:#x}, nor is it seen where else: is it the guest's image? If it \
             was moved as it was loaded, give its place (--elf {image}@ADDRESS)",
            self.name, self.address
        ))
    }
}

/// The functions that are looked for in one source after the other: all that have one of the names.
pub struct Search<'n> {
    names: &'n [String],
    found: Vec<Function>,
    /// Names of the sources that were searched.
    places: Vec<String>,
}

impl<'n> Search<'n> {
    /// Starts a search that has found nothing yet.
    ///
    /// # Errors
    /// There are too many names.
    pub fn new(names: &'n [String]) -> Result<Self, SourceError> {
        let search = Search {
            names,
            found: Vec::new(),
            places: Vec::new(),
        };
        if names.len() > MOST_FUNCTIONS {
            Err(too_many(names.len()))
        } else {
            Ok(search)
        }
    }

    /// Searches the symbol tables of images.
    pub fn look_into(&mut self, images: &[Image]) {
        for (number, image) in images.iter().enumerate() {
            for (index, address) in image.functions(self.names) {
                let code = image.text_at(address, CODE_BYTES).unwrap_or_default();
                self.add(index, address, code, Some(number));
            }
            self.places.push(image.path.display().to_string());
        }
    }

    /// Searches the symbols of a guest's kernel for names that were in no image. These symbols are the guest's own.
    pub fn look_into_kernel(&mut self, kernel: &Linux) {
        let missing = self.missing();
        let is_missing = |index: usize| missing.contains(&self.names[index].as_str());
        let found = kernel.functions(self.names);
        let found: Vec<_> = found
            .into_iter()
            .filter(|(index, _)| is_missing(*index))
            .collect();
        for (index, address) in found {
            self.add(index, address, Vec::new(), None);
        }
        self.places.push("the guest's kernel".into());
    }

    fn add(&mut self, index: usize, address: u64, code: Vec<u8>, image: Option<usize>) {
        if self.found.iter().all(|known| known.address != address) {
            self.found.push(Function {
                name: self.names[index].clone(),
                address,
                code,
                is_on: true,
                image,
            });
        }
    }

    /// The names for which no function was found so far.
    pub fn missing(&self) -> Vec<&'n str> {
        let is_missing = |name: &&String| self.found.iter().all(|known| known.name != **name);
        let missing = self.names.iter().filter(is_missing);
        missing.map(String::as_str).collect()
    }

    /// The functions, if each name has at least one.
    ///
    /// # Errors
    /// Names that were not found, or too many functions.
    pub fn all(self) -> Result<Vec<Function>, SourceError> {
        let missing = self.missing().join(", ");
        if self.places.is_empty() {
            return Err(SourceError(
                "--calls needs the guest's image, where functions are found by name: give it with --elf".into(),
            ));
        }
        if !missing.is_empty() {
            return Err(SourceError(format!(
                "no function {missing} in {}: names are those of the symbol table, as `nm` prints them",
                self.places.join(", "),
            )));
        }
        if self.found.len() > MOST_FUNCTIONS {
            Err(too_many(self.found.len()))
        } else {
            Ok(self.found)
        }
    }
}

fn too_many(count: usize) -> SourceError {
    SourceError(format!(
        "{count} functions have these names, and the calls of at most {MOST_FUNCTIONS} can be followed; name fewer"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(names: &[&str]) -> Result<Vec<Function>, String> {
        let image = Image::open(&std::env::current_exe().unwrap(), None).unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let search = Search::new(&names).map(|mut search| {
            search.look_into(&[image]);
            search
        });
        search.and_then(Search::all).map_err(|error| error.0)
    }

    #[test]
    fn functions_are_found_by_name_or_refused() {
        let main = &found(&["main"]).unwrap()[0];
        assert_eq!(main.code.len(), CODE_BYTES);
        assert_eq!(main.image, Some(0));
        let error = found(&["main", "nobody", "no_one"]).unwrap_err();
        assert!(
            error.starts_with("no function nobody, no_one in"),
            "{error}"
        );
        let nowhere = Search::new(&[]).unwrap().all().unwrap_err();
        assert!(nowhere.0.contains("give it with --elf"), "{nowhere}");
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

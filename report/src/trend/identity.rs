//! What a function is called in all recordings. Input: a label of one recording. Output: a name and an image that
//! are the same in other builds and versions: without suffixes of the compiler, numbers of JIT code, and versions
//! of libraries and programs. The diff compares two sides and may match more; here there are hundreds.

use crate::diff::matching::{UNKNOWN, bare, without_number};
use crate::diff::modules::{JIT, is_own, name_of, without_version};
use crate::profile::labels::{LabelId, Labels};

/// A function in all recordings.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// Its name; functions of an image that have none are one.
    pub name: String,
    /// The file name of its image, without a version; empty if unknown. The recorded program's is `PROGRAM`.
    pub(crate) image: String,
}

impl Identity {
    /// The function of this name in this image.
    pub fn new(name: String, image: String) -> Identity {
        Identity { name, image }
    }
}

/// The image of the recorded program, whatever its file is called.
const PROGRAM: &str = "[program]";

/// A function as one recording has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighting {
    /// The function.
    pub identity: Identity,
    /// The file name of its image.
    pub module: String,
    /// Whether its image is the user's own rather than the system's.
    pub own: bool,
}

impl Sighting {
    /// The function of a label; `None` if it stands for a process, a thread or a stack without frames. `program` is the
    /// file name of the recorded program.
    pub(crate) fn of(labels: &Labels, id: LabelId, program: &str) -> Option<Sighting> {
        let label = labels.get(id);
        if label.made {
            return None;
        }
        let path = labels.text(label.module);
        let module = name_of(path);
        let name = labels.name(id);
        let is_jit = module == JIT;
        let name = if !label.unknown {
            let unnumbered = is_jit.then(|| without_number(name)).flatten();
            unnumbered.unwrap_or_else(|| bare(name).to_owned())
        } else if module.is_empty() {
            UNKNOWN.to_owned() + "]"
        } else {
            format!("{UNKNOWN} in {}]", module.trim_matches(['[', ']']))
        };
        let image = if module == program && !program.is_empty() {
            PROGRAM.to_owned()
        } else {
            without_version(&module)
        };
        Some(Sighting {
            identity: Identity { name, image },
            own: is_own(path),
            module,
        })
    }
}

//! The colours of flame graphs and their key. The colour shows the sort of code or, for the wall time of vCPUs, the
//! place where it was spent; the shade depends on the name, and is the same in each picture.

use crate::profile::labels::{LabelId, Labels};
use inferno::flamegraph::color::{Color, PaletteMap};
use std::collections::BTreeSet;
use uprof::cold::Place;

/// The sort of code that a frame belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The kernel's code.
    Kernel,
    /// The program's own code.
    Program,
    /// Code of a shared library.
    Library,
    /// JIT code.
    Jit,
    /// Inlined into its caller.
    Inlined,
    /// Code without a symbol.
    Unnamed,
    /// Not code: a process or a thread.
    Made,
    /// Where a vCPU's wall time was spent.
    Place(Place),
}

/// Range of the shades, in 256ths of the difference to white.
const SHADES: u64 = 90;

impl Kind {
    /// The sort of code of a label.
    pub(crate) fn of(labels: &Labels, id: LabelId) -> Kind {
        let label = labels.get(id);
        let module = labels.module_name(id);
        if label.made {
            Kind::Made
        } else if label.kernel {
            Kind::Kernel
        } else if label.unknown {
            Kind::Unnamed
        } else if label.inlined {
            Kind::Inlined
        } else if module == "[jit]" {
            Kind::Jit
        } else if module.ends_with(".so") || module.contains(".so.") {
            Kind::Library
        } else {
            Kind::Program
        }
    }

    /// The place of a label in a profile of wall time: that of guest code, unless it has another.
    pub(super) fn of_place(labels: &Labels, id: LabelId) -> Kind {
        let label = labels.get(id);
        match label.place {
            None if label.made => Kind::Made,
            place => Kind::Place(place.unwrap_or(Place::Guest)),
        }
    }

    /// The name in the key, and the darkest colour. They equal those of the page (colours.mjs).
    fn told(self) -> (&'static str, [u8; 3]) {
        match self {
            Kind::Kernel => ("kernel", [247, 152, 69]),
            Kind::Program => ("program", [242, 128, 112]),
            Kind::Library => ("library", [242, 215, 105]),
            Kind::Jit => ("JIT", [140, 207, 130]),
            Kind::Inlined => ("inlined", [125, 213, 213]),
            Kind::Unnamed => ("no name", [178, 184, 189]),
            Kind::Made => ("process, thread", [201, 196, 228]),
            Kind::Place(Place::Guest) => ("guest code", [242, 128, 112]),
            Kind::Place(Place::Hypervisor) => ("exits, hypervisor", [247, 152, 69]),
            Kind::Place(Place::Monitor) => ("monitor", [242, 215, 105]),
            Kind::Place(Place::Ready) => ("waiting", [140, 207, 130]),
            Kind::Place(Place::Halted) => ("halted", [125, 213, 213]),
            Kind::Place(Place::Paused) => ("paused by recorder", [150, 170, 235]),
            Kind::Place(Place::Unknown) => ("unknown", [178, 184, 189]),
        }
    }
}

/// What a key calls a place of wall time, and its colour.
pub(crate) fn key_of(place: Place) -> (&'static str, String) {
    let (text, [r, g, b]) = Kind::Place(place).told();
    (text, format!("rgb({r},{g},{b})"))
}

/// Colours by name, and the key of those that occur.
#[derive(Debug, Default)]
pub(crate) struct Palette {
    pub(super) colours: PaletteMap,
    kinds: BTreeSet<Kind>,
    /// Entries of a key that replaces the sorts of code.
    other: &'static [(&'static str, &'static str)],
}

impl Palette {
    /// The colours of all labels under their `names`, by their `kind`.
    pub(crate) fn of(
        labels: &Labels,
        names: &[String],
        kind: fn(&Labels, LabelId) -> Kind,
    ) -> Palette {
        let mut palette = Palette::default();
        // inferno's name of the root box.
        palette.add("", Kind::Made);
        for (id, name) in names.iter().enumerate() {
            palette.add(name, kind(labels, id as LabelId));
        }
        palette
    }

    /// A palette without colours of names, but with a key of other colours.
    pub(crate) fn with_key(other: &'static [(&'static str, &'static str)]) -> Palette {
        Palette {
            other,
            ..Palette::default()
        }
    }

    /// Gives a name the colour of `kind`.
    pub(crate) fn add(&mut self, name: &str, kind: Kind) {
        let (_, base) = kind.told();
        let shade = shade(name);
        let [r, g, b] = base.map(|part| part + (u64::from(255 - part) * shade / 256) as u8);
        self.colours.insert(name, Color { r, g, b });
        self.kinds.insert(kind);
    }

    /// The entries of the key: text and colour.
    pub(super) fn key(&self) -> Vec<(&'static str, String)> {
        let kinds = self.kinds.iter().map(|kind| {
            let (text, [r, g, b]) = kind.told();
            (text, format!("rgb({r},{g},{b})"))
        });
        let others = self.other.iter();
        kinds
            .chain(others.map(|(text, colour)| (*text, (*colour).to_owned())))
            .collect()
    }
}

/// How much lighter the colour of a name is (FNV-1a hash).
fn shade(name: &str) -> u64 {
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    u64::from(hash ^ (hash >> 15)) % SHADES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::labels::Label;

    #[test]
    fn kinds_are_what_code_is_and_not_what_it_is_called() {
        let mut labels = Labels::new();
        let mut kind = |name: &str, module: &str, label: Label| {
            let (name, module) = (labels.text_id(name), labels.text_id(module));
            let id = labels.id(Label {
                name,
                module,
                ..label
            });
            Kind::of(&labels, id)
        };
        let plain = Label::default();
        let kernel = Label {
            kernel: true,
            unknown: true,
            ..plain
        };
        let inlined = Label {
            inlined: true,
            ..plain
        };
        // inferno's own palette takes these for Java.
        assert_eq!(kind("Py_Main", "/usr/bin/python3.11", plain), Kind::Program);
        assert_eq!(kind("f.part.0", "/lib/libc.so.6", plain), Kind::Library);
        assert_eq!(kind("a/b", "/x/plugin.so", inlined), Kind::Inlined);
        assert_eq!(kind("Lcom/A;::f", "[jit]", plain), Kind::Jit);
        assert_eq!(kind("vmlinux+0x1", "[kernel]", kernel), Kind::Kernel);
    }
}

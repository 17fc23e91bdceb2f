//! The page's script: all its modules in one script element, so that the page needs no other file and its
//! policy allows one script by its hash. Each module is an ES module, which node tests as it is. Here the
//! `import` lines are removed, and exports become plain declarations.

use std::io::{self, Write};

/// The modules, each after the modules that it imports.
const MODULES: &[&str] = &[
    include_str!("script/amounts.mjs"),
    include_str!("script/bytes.mjs"),
    include_str!("script/profile.mjs"),
    include_str!("script/selection.mjs"),
    include_str!("script/sides.mjs"),
    include_str!("script/calls.mjs"),
    include_str!("script/functions.mjs"),
    include_str!("script/boxes.mjs"),
    include_str!("script/joined.mjs"),
    include_str!("script/verdicts.mjs"),
    include_str!("script/spots.mjs"),
    include_str!("script/model.mjs"),
    include_str!("script/code.mjs"),
    include_str!("script/activity.mjs"),
    include_str!("script/moments.mjs"),
    include_str!("script/lapses.mjs"),
    include_str!("script/names.mjs"),
    include_str!("script/colours.mjs"),
    include_str!("script/shades.mjs"),
    include_str!("script/look.mjs"),
    include_str!("script/folded.mjs"),
    include_str!("script/pprof.mjs"),
    include_str!("script/element.mjs"),
    include_str!("script/help.mjs"),
    include_str!("script/forms.mjs"),
    include_str!("script/app.mjs"),
    include_str!("script/filters.mjs"),
    include_str!("script/summary.mjs"),
    include_str!("script/surface.mjs"),
    include_str!("script/bands.mjs"),
    include_str!("script/flame.mjs"),
    include_str!("script/flamepair.mjs"),
    include_str!("script/bar.mjs"),
    include_str!("script/side.mjs"),
    include_str!("script/table.mjs"),
    include_str!("script/changes.mjs"),
    include_str!("script/calltree.mjs"),
    include_str!("script/codeview.mjs"),
    include_str!("script/tracks.mjs"),
    include_str!("script/heatmap.mjs"),
    include_str!("script/timechart.mjs"),
    include_str!("script/tabs.mjs"),
    include_str!("script/toolbar.mjs"),
    include_str!("script/page.mjs"),
    include_str!("script/comparison.mjs"),
    include_str!("script/begin.mjs"),
];

/// Writes the script.
pub(super) fn write(out: &mut dyn Write) -> io::Result<()> {
    out.write_all(b"\n'use strict'\n{\n")?;
    for module in MODULES {
        let mut lines = module.lines();
        while let Some(line) = lines.next() {
            if line.starts_with("import ") {
                // An import of several lines ends with the line that names its module.
                let mut last = line;
                while !last.contains(" from '") {
                    last = lines.next().unwrap_or(" from '");
                }
                continue;
            }
            let line = line.strip_prefix("export ").unwrap_or(line);
            writeln!(out, "{line}")?;
        }
    }
    out.write_all(b"}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_module_is_left_that_a_plain_script_may_not_have() {
        let mut script = Vec::new();
        write(&mut script).unwrap();
        let script = String::from_utf8(script).unwrap();
        for line in script.lines() {
            assert!(
                !line.starts_with("import ") && !line.starts_with("export"),
                "{line}"
            );
        }
        for markup in [
            "</",
            "<!--",
            "innerHTML",
            "outerHTML",
            "insertAdjacent",
            "fetch(",
            "XMLHttpRequest",
            "import(",
            "WebSocket",
            "Function(",
            "eval(",
        ] {
            assert!(!script.contains(markup), "{markup}");
        }
        assert!(script.contains("\nfunction share("));
    }
}

//! The meanings of each subcommand's exit status, for its manual page.

/// Status 2 of every subcommand.
const FAILED: &str = "failed, or not understood: a message says what, why and what to do";

/// The meaning of status 1 of a subcommand; `None` if it has none.
fn in_part(subcommand: &str) -> Option<&'static str> {
    Some(match subcommand {
        "record" | "demo" => {
            "recorded, but samples, tables or the rest of the output are lost (deadlines missed only from 5 % of them \
             on), or there is no sample, or with --push a profile was lost, refused or waits"
        }
        "report" => {
            "shown, but of a recording that is not whole, or a function asked for is in no sample, or the recording \
             has nothing of what the view shows"
        }
        "top" => "shown, but of a stream that was damaged or cut off",
        "export" | "info" | "dump" => "written, but of a recording that is not whole",
        "bundle" => {
            "written, but an image that samples need was not found, or some of its tables are left out"
        }
        "push" => {
            "delivered, or kept in the spool, but not everything: some profile is refused or waits, or a recording or \
             its names are not whole"
        }
        "import" => "imported, but something in the input is wrong; nothing else of it is lost",
        "recover" => "recovered, but not everything",
        "save" => "saved by some recorders, but not by all",
        "diff" | "compare" => {
            "compared, but a rule of --fail-if is broken, or a recording is not whole"
        }
        "certify" => {
            "compared, but the profile is wrong somewhere, or a function could not be slowed down"
        }
        "trend" => {
            "written, but a rule of --fail-if is broken, or a recording is not whole or is left out"
        }
        "doctor" => "recording works, but could be better",
        _ => return None,
    })
}

/// The statuses and their meanings.
pub fn meanings(subcommand: &str) -> Vec<(&'static str, &'static str)> {
    let mut all = vec![("0", "done")];
    all.extend(in_part(subcommand).map(|what| ("1", what)));
    all.push(("2", FAILED));
    if subcommand == "record" {
        all.push((
            "other",
            "with --exit-status, that of the command that was recorded",
        ));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn subcommands_that_can_end_with_1_say_so() {
        let without: Vec<String> = crate::Cli::command()
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
            .map(|command| command.get_name().to_owned())
            .filter(|name| in_part(name).is_none())
            .collect();
        assert_eq!(without, ["mcp", "completions", "man"]);
    }
}

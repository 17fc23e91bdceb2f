//! `uniprof save`: makes running flight recorders (`record --keep`) save their windows.

use crate::outcome::{Outcome, Reported};
use crate::terminal::{inform, say};
use anyhow::{Context, bail};
use uniprof_record::save_socket::{self, RunningRecorder};

/// Save what `record --keep` has kept
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  uniprof save                 the only recorder that keeps a window
  uniprof save web             the one that writes web.uprof
  uniprof save 4711            the one with this process id, all its domains

It finds recorders of the same user and of root, in the same network namespace. SIGUSR1 reaches one in any.")]
pub struct Args {
    /// The name of the recording, which is its file's without .uprof, or the recorder's process id
    #[arg(value_name = "NAME|PID")]
    recorder: Option<String>,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let running = save_socket::running().context("cannot look for recorders")?;
    let chosen = choose(&running, args.recorder.as_deref())?;
    let mut failed = 0;
    for recorder in &chosen {
        let RunningRecorder { pid, name } = recorder;
        let answer = recorder
            .save()
            .with_context(|| format!("{name}, process {pid}, did not save"));
        match answer.as_deref().map(|answer| answer.split_once(' ')) {
            Ok(Some(("saved", path))) => inform(format_args!("Saved {path}")),
            Ok(Some(("failed", why))) => {
                failed += 1;
                say(format_args!("uniprof: {why}"));
            }
            Ok(_) => {
                failed += 1;
                say(format_args!(
                    "uniprof: {name}, process {pid}, gave an answer that is not understood"
                ));
            }
            Err(error) => {
                failed += 1;
                say(format_args!("uniprof: {error:#}"));
            }
        }
    }
    if failed == chosen.len() {
        bail!(Reported);
    }
    Ok(Outcome::lossy_if(failed > 0))
}

/// The recorders that are meant: one, or those of several domains in one process.
fn choose(
    running: &[RunningRecorder],
    wanted: Option<&str>,
) -> anyhow::Result<Vec<RunningRecorder>> {
    let is_meant = |one: &&RunningRecorder| match wanted {
        None => true,
        Some(wanted) => {
            one.name == save_socket::name_at_socket(stem(wanted)) || one.pid.to_string() == wanted
        }
    };
    let found: Vec<RunningRecorder> = running.iter().filter(is_meant).cloned().collect();
    let Some(first) = found.first() else {
        let list = list(running);
        match wanted {
            _ if running.is_empty() => bail!(
                "no recorder keeps a window: one that does is started by `uniprof record --keep 60s TARGET`, by this \
                 user or root"
            ),
            Some(wanted) => {
                bail!("no recorder that keeps a window is called `{wanted}`; there are {list}")
            }
            None => bail!("there are {list}"),
        }
    };
    if found.iter().any(|one| one.pid != first.pid) {
        bail!(
            "several recorders are meant: {}; name one by its process id",
            list(&found)
        );
    }
    Ok(found)
}

/// A file's name without its ending.
fn stem(name: &str) -> &str {
    name.strip_suffix(".uprof").unwrap_or(name)
}

fn list(recorders: &[RunningRecorder]) -> String {
    let all = recorders
        .iter()
        .map(|one| format!("{} (process {})", one.name, one.pid));
    all.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorders_are_chosen_by_name_or_process() {
        let one = |pid, name: &str| RunningRecorder {
            pid,
            name: name.into(),
        };
        let running = [
            one(7, "run"),
            one(8, "run"),
            one(9, "1-web"),
            one(9, "2-db"),
        ];
        let chosen = |wanted| choose(&running, wanted).map_err(|error| error.to_string());
        assert_eq!(chosen(Some("7")).unwrap(), [one(7, "run")]);
        assert_eq!(chosen(Some("9")).unwrap().len(), 2);
        assert_eq!(chosen(Some("2-db.uprof")).unwrap(), [one(9, "2-db")]);
        assert!(chosen(Some("run")).unwrap_err().contains("run (process 8)"));
        assert!(
            chosen(Some("log"))
                .unwrap_err()
                .contains("1-web (process 9)")
        );
        assert!(chosen(None).is_err());
        assert_eq!(choose(&running[..1], None).unwrap(), [one(7, "run")]);
        assert!(
            choose(&[], None)
                .unwrap_err()
                .to_string()
                .contains("record --keep")
        );
    }
}

//! `uniprof completions`: completion scripts for shells. A script runs this program at each TAB, so it can offer
//! existing recordings, functions and targets.

use crate::outcome::Outcome;
use anyhow::Context;
use clap::error::Result;
use clap::{Command, CommandFactory};
use clap_complete::env::{self, Elvish, EnvCompleter, Fish, Powershell, Shells, Zsh};
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

/// Print completions for a shell
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  uniprof completions bash >/etc/bash_completion.d/uniprof
  uniprof completions zsh >\"${fpath[1]}/_uniprof\"")]
pub struct Args {
    /// Which shell
    shell: clap_complete::Shell,
}

/// The variable with which a shell's script requests completions.
const ASKED: &str = "UNIPROF_COMPLETE";
const SHELLS: Shells<'static> = Shells(&[&Bash, &Elvish, &Fish, &Powershell, &Zsh]);

/// Prints the script of a shell to standard output.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let name = args.shell.to_string();
    let shell = SHELLS.completer(&name);
    let shell = shell.with_context(|| format!("there are no completions for {name}"))?;
    let mut script = Vec::new();
    shell.write_registration(ASKED, "uniprof", "uniprof", "uniprof", &mut script)?;
    std::io::stdout()
        .write_all(&script)
        .context("cannot write to standard output")?;
    Ok(Outcome::Done)
}

/// Prints completions if a shell's script requests them; returns whether it did.
///
/// # Errors
/// The shell is unknown.
pub fn answer<C: CommandFactory>() -> Result<bool> {
    let asked = env::CompleteEnv::with_factory(C::command);
    let folder = std::env::current_dir().ok();
    asked
        .var(ASKED)
        .shells(SHELLS)
        .try_complete(std::env::args_os(), folder.as_deref())
}

/// Bash splits words at colons and equals signs, and inserts candidates as if the user had typed them. Names of files
/// and functions are therefore not trusted.
struct Bash;

impl EnvCompleter for Bash {
    fn name(&self) -> &'static str {
        "bash"
    }

    fn is(&self, name: &str) -> bool {
        env::Bash.is(name)
    }

    fn write_registration(
        &self,
        var: &str,
        name: &str,
        bin: &str,
        completer: &str,
        buf: &mut dyn Write,
    ) -> std::io::Result<()> {
        write!(
            buf,
            r#"_{name}() {{
    # Words are split at colons and equals signs, which are part of ours.
    local words=() word joins=0 at=$((COMP_CWORD + 1))
    for word in "${{COMP_WORDS[@]:0:at}}"; do
        if ((joins)) || [[ $word == [:=]* && ${{#words[@]}} -gt 1 ]]; then
            words[-1]+=$word
        else
            words+=("$word")
        fi
        [[ $word == [:=]* ]] && joins=1 || joins=0
    done
    local current=${{words[-1]}} index=$((${{#words[@]}} - 1))
    words+=("${{COMP_WORDS[@]:at}}")
    mapfile -t COMPREPLY < <({var}=bash _CLAP_IFS=$'\n' _CLAP_COMPLETE_INDEX=$index \
        {completer} -- "${{words[@]}}" 2>/dev/null)
    # What precedes the last of them stays.
    COMPREPLY=("${{COMPREPLY[@]#"${{current%"${{current##*[:=]}}"}}"}}")
    [[ ${{COMPREPLY-}} == *[=/:,] ]] && compopt -o nospace
    return 0
}}
complete -o bashdefault -o default -F _{name} {bin}
"#
        )
    }

    fn write_complete(
        &self,
        command: &mut Command,
        words: Vec<OsString>,
        folder: Option<&Path>,
        buf: &mut dyn Write,
    ) -> std::io::Result<()> {
        let mut all = Vec::new();
        env::Bash.write_complete(command, words, folder, &mut all)?;
        let all = String::from_utf8_lossy(&all);
        for word in all.split('\n').filter(|word| is_plain(word)) {
            writeln!(buf, "{word}")?;
        }
        Ok(())
    }
}

/// Whether a word needs no quoting in a shell.
pub fn is_plain(word: &str) -> bool {
    let is_plain = |letter: char| letter.is_alphanumeric() || "_-./:=@,+%".contains(letter);
    !word.is_empty() && word.chars().all(is_plain)
}

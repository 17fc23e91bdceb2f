//! `uniprof top` on a terminal that tmux emulates: what it shows, what its keys do, and how it leaves the terminal.

#![cfg(all(feature = "record", feature = "report"))]

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use uprof::cold::{End, EndReason, Metadata, TargetKind, TaskChange, TaskEvent};
use uprof::image::{ImageIdentity, ImagePart, Symbol};
use uprof::{Arch, Frame, Sample, Task, Writer};

/// How long anything on the screen may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A terminal with a shell command.
struct Terminal {
    /// Has the socket of a server of its own.
    server: tempfile::TempDir,
}

impl Terminal {
    /// Starts `command` in `folder`. Its exit status and the state of the terminal follow its output. Without tmux it
    /// says so and returns `None`.
    fn start(folder: &Path, command: &str) -> Option<Terminal> {
        let terminal = Terminal {
            server: tempfile::tempdir().unwrap(),
        };
        let program = kit::program();
        let after = "echo status $?; stty -a; sleep 600";
        let line = format!(
            "{}; {after}",
            command.replace("uniprof", &program.to_string_lossy())
        );
        let new = ["new-session", "-d", "-x", "120", "-y", "40", &line];
        let Ok(started) = terminal.tmux(&new).current_dir(folder).output() else {
            eprintln!("skipped: there is no tmux to draw in");
            return None;
        };
        assert!(started.status.success(), "{started:?}");
        Some(terminal)
    }

    fn tmux(&self, words: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command
            .arg("-S")
            .arg(self.server.path().join("tmux.socket"));
        // Not in the terminal of whoever runs the tests.
        command.env_remove("TMUX").args(["-f", "/dev/null"]);
        command.args(words).stdin(Stdio::null());
        command
    }

    #[track_caller]
    fn ask(&self, words: &[&str]) -> String {
        let output = self.tmux(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        kit::text(&output.stdout)
    }

    fn press(&self, keys: &[&str]) {
        self.ask(&[&["send-keys"], keys].concat());
    }

    fn screen(&self) -> String {
        self.ask(&["capture-pane", "-p"])
    }

    /// The screen as soon as it is as it should be.
    #[track_caller]
    fn wait(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let screen = self.screen();
            if is_so(&screen) {
                return screen;
            }
            assert!(begun.elapsed() < PATIENCE, "{what} is missing: {screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    #[track_caller]
    fn wait_for(&self, text: &str) -> String {
        self.wait(text, |screen| screen.contains(text))
    }

    /// Checks that the program ended with `status`, and that the terminal is as it was.
    #[track_caller]
    fn is_restored(&self, status: i32) {
        let screen = self.wait_for(" echoe ");
        assert!(screen.contains(&format!("status {status}\n")), "{screen}");
        for mode in ["-icanon", "-echo ", "-isig", "-opost"] {
            assert!(!screen.contains(mode), "{mode}: {screen}");
        }
        let alternate = self.ask(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]);
        assert_eq!(alternate.trim(), "0 1");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]).output();
    }
}

/// The number before ` samples` in the first line.
fn samples(screen: &str) -> u64 {
    let words: Vec<&str> = screen
        .lines()
        .next()
        .unwrap_or("")
        .split_whitespace()
        .collect();
    let at = words.iter().position(|word| *word == "samples");
    at.and_then(|at| words[at - 1].parse().ok()).unwrap_or(0)
}

/// Samples of `function` in total.
fn total(text: &str, function: &str) -> Option<u64> {
    let row = text
        .lines()
        .find(|line| line.contains(&format!("  {function}  [")))?;
    row.split_whitespace().nth(2)?.parse().ok()
}

/// Processes whose command line has `text`.
fn running(text: &str) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap();
    let lines = processes.filter_map(|one| std::fs::read(one.ok()?.path().join("cmdline")).ok());
    let lines = lines.map(|line| kit::text(&line).replace('\0', " "));
    lines
        .filter(|line| line.contains(text) && !line.contains("tmux"))
        .collect()
}

#[track_caller]
fn nothing_runs(text: &str) {
    let begun = Instant::now();
    while !running(text).is_empty() {
        assert!(begun.elapsed() < PATIENCE, "{:?}", running(text));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Functions with a sixth, a third and a half of the time.
const SHARES: [(&str, f64); 3] = [("one", 1.0 / 6.0), ("two", 1.0 / 3.0), ("three", 0.5)];
const SOURCE: &str = "
static volatile unsigned long sink;
#define WORK(name) __attribute__((noinline)) void name(unsigned long n) { \\
    for (unsigned long i = 0; i < n; i++) sink += i * 3; }
WORK(one) WORK(two) WORK(three)
int main(void) { for (;;) { one(4000); two(8000); three(12000); } }
";
/// With that many, a share of one half is off by 3 points once in 7000 times.
const ENOUGH: u64 = 4000;

/// Builds the program that never ends. Without gcc it says so and returns `None`.
fn build(folder: &Path) -> Option<PathBuf> {
    let flags = ["-O2", "-fno-ipa-icf"];
    kit::build(&folder.join("shares"), SOURCE, &flags)
}

#[test]
fn a_program_is_watched_searched_paused_and_saved() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_) = build(folder.path()) else {
        return;
    };
    let command = "uniprof top -n 60s -F 3989 -- ./shares";
    let Some(terminal) = Terminal::start(folder.path(), command) else {
        return;
    };
    let screen = terminal.wait("samples", |screen| samples(screen) >= ENOUGH);
    let all = samples(&screen) as f64;
    for (function, share) in SHARES {
        let found = total(&screen, function).unwrap_or(0) as f64 / all;
        assert!(
            (found - share).abs() < 0.03,
            "{function}: {found}\n{screen}"
        );
    }
    terminal.press(&["/", "tw[o]", "Enter"]);
    terminal.wait_for("search /tw[o]/");
    terminal.press(&["p"]);
    terminal.wait_for("PAUSED");
    // The picture of before the key may still come.
    std::thread::sleep(Duration::from_millis(500));
    let paused = terminal.screen();
    terminal.press(&["w"]);
    let saved = terminal.wait_for("saved: ");
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(samples(&terminal.screen()), samples(&paused));
    // The file has what is on the screen, and is a whole recording.
    assert!(saved.contains("top-1.uprof"), "{saved}");
    let mut report = kit::uniprof();
    let shown = kit::run(report.current_dir(folder.path()).args([
        "report",
        "--width",
        "120",
        "top-1.uprof",
    ]));
    assert_eq!(shown.status, 0, "{shown:?}");
    for (function, _) in SHARES {
        assert!(total(&paused, function).is_some(), "{paused}");
        assert_eq!(
            total(&shown.stdout, function),
            total(&paused, function),
            "{paused}"
        );
    }
    terminal.press(&["p"]);
    terminal.wait("more", |screen| samples(screen) > samples(&paused));
    terminal.press(&["f", "^two$", "Enter"]);
    let focused = terminal.wait("focus", |screen| {
        total(screen, "three").is_none() && total(screen, "two").is_some()
    });
    assert_eq!(total(&focused, "two"), Some(samples(&focused)), "{focused}");
    terminal.press(&["Escape"]);
    terminal.press(&["2"]);
    terminal.wait("the tree", |screen| screen.contains("├ three"));
    terminal.press(&["3"]);
    let threads = terminal.wait_for("vCPU or thread");
    let rows: Vec<&str> = threads.lines().collect();
    let heading = rows.iter().position(|row| row.contains("vCPU or thread"));
    let busiest = rows[heading.unwrap() + 1];
    assert!(busiest.contains("  shares ("), "{threads}");
    terminal.press(&["?"]);
    terminal.wait_for("these keys");
    terminal.press(&["?"]);
    terminal.ask(&["resize-window", "-x", "30", "-y", "8"]);
    terminal.wait_for("too small");
    terminal.ask(&["resize-window", "-x", "100", "-y", "40"]);
    terminal.wait_for("vCPU or thread");
    terminal.press(&["q"]);
    terminal.is_restored(0);
    nothing_runs("./shares");
}

#[test]
fn however_it_ends_the_terminal_is_restored_and_the_recorder_gone() {
    for signal in ["TERM", "HUP", "INT"] {
        let folder = tempfile::tempdir().unwrap();
        // The number tells this command from those of other tests.
        let command = format!("sleep 1{}", std::process::id());
        let Some(terminal) = Terminal::start(folder.path(), &format!("uniprof top -- {command}"))
        else {
            return;
        };
        terminal.wait_for("? keys");
        let top = format!("pkill -{signal} -f -x '.*uniprof top -- {command}'");
        let killed = Command::new("sh").args(["-c", &top]).status().unwrap();
        assert!(killed.success(), "{:?}", running(&command));
        let number = match signal {
            "TERM" => 15,
            "HUP" => 1,
            _ => 2,
        };
        terminal.is_restored(128 + number);
        nothing_runs(&command);
    }
    // The terminal itself goes away.
    let folder = tempfile::tempdir().unwrap();
    let command = format!("sleep 2{}", std::process::id());
    let Some(terminal) = Terminal::start(folder.path(), &format!("uniprof top -- {command}"))
    else {
        return;
    };
    terminal.wait_for("? keys");
    drop(terminal);
    nothing_runs(&command);
}

#[test]
fn a_target_that_ends_or_is_none_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_) = build(folder.path()) else {
        return;
    };
    let command = "uniprof top -- timeout 1 ./shares";
    let Some(terminal) = Terminal::start(folder.path(), command) else {
        return;
    };
    let screen = terminal.wait_for("ENDED");
    assert!(screen.contains("ended: "), "{screen}");
    assert!(total(&screen, "three").is_some(), "{screen}");
    terminal.press(&["q"]);
    terminal.is_restored(0);
    drop(terminal);
    let Some(terminal) = Terminal::start(folder.path(), "uniprof top pid:999999999") else {
        return;
    };
    terminal.is_restored(2);
    assert!(
        terminal.screen().contains("999999999"),
        "{}",
        terminal.screen()
    );
}

const SECOND_NS: u64 = 1_000_000_000;
/// What must not reach a terminal.
const EVIL: &str = "evil\u{1b}[2J\u{1b}]0;title\u{7}\u{202e}name";

/// A recording of a guest with a sample of each of two vCPUs every tenth of a second, in pieces of a second.
fn pieces(seconds: u64) -> Vec<Vec<u8>> {
    let mut metadata = Metadata::default();
    metadata.target.kind = TargetKind::Qemu;
    metadata.target.name = EVIL.into();
    metadata.sampling.rate_millihertz = 10_000;
    let mut writer = Writer::create(Vec::new(), [9; 16], &metadata, SECOND_NS).unwrap();
    let mut image = ImagePart::new(ImageIdentity {
        path: "[guest]".into(),
        build_id: Vec::new(),
        arch: Arch::X86_64,
        load_bias: 0,
        origin: "test".into(),
    });
    for (address, name) in [(0x1000, EVIL), (0x2000, "idle_or_not")] {
        image.push(Symbol {
            address,
            size_bytes: 0x100,
            name,
        });
    }
    writer.image_part(&image, SECOND_NS).unwrap();
    let tasks = [0, 1].map(|vcpu| Task { space: 0, vcpu });
    let named = tasks.map(|task| TaskEvent {
        time_ns: SECOND_NS,
        task,
        what: TaskChange::Named(format!("cpu{}", task.vcpu)),
    });
    writer.tasks(&named).unwrap();
    let mut ends = Vec::new();
    for tenth in 0..seconds * 10 {
        let time_ns = SECOND_NS + tenth * SECOND_NS / 10;
        for (task, address) in tasks.into_iter().zip([0x1010, 0x2010]) {
            let is_blocked = task.vcpu == 1 && tenth % 2 == 1;
            let frames = [Frame::exact(address)];
            let sample = Sample {
                state: if is_blocked {
                    uprof::State::Blocked
                } else {
                    uprof::State::Running
                },
                ..Sample::bare(time_ns, task, &frames)
            };
            writer.sample(&sample).unwrap();
        }
        if tenth % 10 == 9 {
            writer.flush().unwrap();
            ends.push(writer.written_bytes() as usize);
        }
    }
    let end = End {
        time_ns: SECOND_NS * (seconds + 1),
        reason: EndReason::TargetEnded,
        message: "the guest was destroyed".into(),
        totals: Vec::new(),
    };
    let bytes = writer.finish(&end).unwrap();
    ends.push(bytes.len());
    let mut from = 0;
    let cut = |to| {
        let piece = bytes[from..to].to_vec();
        from = to;
        piece
    };
    ends.into_iter().map(cut).collect()
}

#[test]
fn a_file_is_followed_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("live.uprof");
    let mut pieces = pieces(20).into_iter();
    let mut file = File::create(&path).unwrap();
    for piece in pieces.by_ref().take(3) {
        file.write_all(&piece).unwrap();
    }
    let Some(terminal) = Terminal::start(folder.path(), "uniprof top -n 5s live.uprof") else {
        return;
    };
    // One vCPU ran in all 30 samples, the other in 15.
    let screen = terminal.wait("samples", |screen| samples(screen) == 45);
    assert!(screen.contains(" 50.0% blocked  cpu1"), "{screen}");
    assert!(screen.contains("100.0% running  cpu0"), "{screen}");
    assert!(screen.contains("idle_or_not"), "{screen}");
    assert!(!screen.contains('\u{202e}'), "{screen:?}");
    let title = terminal.ask(&["display-message", "-p", "#{pane_title}"]);
    assert!(!title.contains("title"), "{title}");
    assert!(screen.contains("evil"), "{screen}");
    for piece in pieces {
        file.write_all(&piece).unwrap();
    }
    let screen = terminal.wait_for("ended: the guest was destroyed");
    // The last 5 s, which begin with a block of a second.
    assert!((75..=90).contains(&samples(&screen)), "{screen}");
    terminal.press(&["q"]);
    terminal.is_restored(0);
}

#[test]
fn a_stream_is_shown_and_its_damage_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.uprof");
    let whole = pieces(5).concat();
    std::fs::write(&path, &whole).unwrap();
    let Some(terminal) = Terminal::start(folder.path(), "cat run.uprof | uniprof top -") else {
        return;
    };
    let screen = terminal.wait_for("ended: the guest was destroyed");
    assert_eq!(samples(&screen), 75, "{screen}");
    // Keys come from the terminal, not from standard input.
    terminal.press(&["q"]);
    terminal.is_restored(0);
    drop(terminal);
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 0x55;
    std::fs::write(&path, &damaged[..whole.len() - 20]).unwrap();
    let Some(terminal) = Terminal::start(folder.path(), "cat run.uprof | uniprof top -") else {
        return;
    };
    terminal.wait_for("nothing more comes");
    terminal.press(&["4"]);
    terminal.wait_for("the stream is damaged at ");
    terminal.press(&["q"]);
    terminal.is_restored(1);
}

#[test]
fn without_a_terminal_or_a_recording_it_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let ended = kit::run(kit::uniprof().args(["top", "--", "true"]));
    assert_eq!(ended.status, 2);
    assert!(ended.stderr.contains("uniprof report"), "{}", ended.stderr);
    std::fs::write(
        folder.path().join("text"),
        "no recording at all, but longer than a preamble",
    )
    .unwrap();
    for (of, why) in [
        ("text", "not a .uprof"),
        ("missing.uprof", "cannot open"),
        ("- </dev/null", "empty"),
    ] {
        let Some(terminal) = Terminal::start(folder.path(), &format!("uniprof top {of}")) else {
            return;
        };
        terminal.is_restored(2);
        let screen = terminal.screen();
        assert!(screen.contains(why), "{of}: {screen}");
    }
}

//! A guest with the agent, recorded from outside by the program. The guest is `agent/examples/process.rs`, a
//! unikernel that runs as a Linux process; it is reached over TCP and a Unix socket.

mod wire;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Builds the guest with frame pointers for a target of Rust, with this machine's linker or another.
fn build(more: &[&str], linker: Option<&str>) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = root.join("target/agent");
    let flags = linker.map_or(String::new(), |linker| format!(" -C linker={linker}"));
    let output = Command::new(env!("CARGO"))
        .args([
            "build",
            "--release",
            "--locked",
            "--quiet",
            "--example",
            "process",
        ])
        .args(["-p", "uniprof-agent", "--target-dir"])
        .arg(&folder)
        .args(more)
        .env("RUSTFLAGS", format!("-C force-frame-pointers=yes{flags}"))
        .current_dir(root)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    folder
}

fn image() -> &'static Path {
    static IMAGE: OnceLock<PathBuf> = OnceLock::new();
    IMAGE.get_or_init(|| build(&[], None).join("release/examples/process"))
}

/// Only one guest runs at a time: the shares of a guest that mostly waits for a processor show little.
static TURN: Mutex<()> = Mutex::new(());

/// A guest that runs until this is dropped.
struct Guest {
    _turn: MutexGuard<'static, ()>,
    child: Child,
    /// The guest as a target of the recorder.
    target: String,
    work: Arc<AtomicU64>,
    is_sampling: Arc<AtomicBool>,
    folder: TempDir,
}

impl Guest {
    fn start(by_tcp: bool, vcpus: u32) -> Guest {
        Guest::run(Command::new(image()), by_tcp, vcpus, &[])
    }

    fn run(mut command: Command, by_tcp: bool, vcpus: u32, more: &[&str]) -> Guest {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("agent").display().to_string();
        let place = if by_tcp { "127.0.0.1:0" } else { &socket };
        let mut child = command
            .args([place, &vcpus.to_string()])
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut target = format!("agent:{socket}");
        for line in lines.by_ref().map(Result::unwrap) {
            if let Some(port) = line.strip_prefix("port ") {
                target = format!("agent:127.0.0.1:{port}");
            }
            if line == "ready" {
                break;
            }
        }
        let (work, is_sampling) = (Arc::default(), Arc::default());
        let guest = Guest {
            _turn: turn,
            child,
            target,
            work: Arc::clone(&work),
            is_sampling: Arc::clone(&is_sampling),
            folder,
        };
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let mut words = line.split(' ').skip(1);
                let (done, samples) = (words.next().unwrap(), words.next().unwrap());
                work.store(done.parse().unwrap(), Ordering::SeqCst);
                is_sampling.store(samples == "true", Ordering::SeqCst);
            }
        });
        guest
    }

    fn recorder(&self, more: &[&str]) -> Command {
        let mut command = kit::uniprof();
        command
            .arg("record")
            .args(more)
            .arg("-o")
            .arg(self.recording())
            .arg(&self.target);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    fn record(&self, more: &[&str]) -> Output {
        self.recorder(more).output().unwrap()
    }

    fn recording(&self) -> PathBuf {
        self.folder.path().join("run.uprof")
    }

    /// Stacks of one vCPU, with their counts.
    fn stacks(&self, vcpu: u32) -> BTreeMap<String, u64> {
        let output = kit::uniprof()
            .args(["export", "-f", "folded", "--vcpu", &vcpu.to_string()])
            .arg(self.recording())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let rows = text.lines().map(|line| line.rsplit_once(' ').unwrap());
        rows.map(|(stack, count)| (stack.to_owned(), count.parse().unwrap()))
            .collect()
    }

    /// Whether the guest is still working.
    fn works(&self) -> bool {
        let before = self.work.load(Ordering::SeqCst);
        soon(|| self.work.load(Ordering::SeqCst) > before)
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.target.strip_prefix("agent:").unwrap()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        stream
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn soon(mut is_so: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(20) {
        if is_so() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A guest that stops its timer: it claims a thousand interrupts a second, but has nine.
#[test]
fn a_guest_whose_timer_seldom_interrupts_is_reported() {
    let guest = Guest::run(Command::new(image()), false, 1, &["9"]);
    let output = guest.record(&["-F", "99", "-d", "4s"]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let is_told = said.contains("samples a second, of 99 asked for: its timer");
    assert!(is_told && said.contains("agent/README.md"), "{said}");
}

/// The functions whose shares are known.
const FUNCTIONS: [&str; 3] = ["process::alpha", "process::beta", "process::gamma"];

fn check_shares(guest: &Guest, vcpu: u32, truth: [f64; 3]) {
    let stacks = guest.stacks(vcpu);
    let total: u64 = stacks.values().sum();
    assert!(total > 500, "vCPU {vcpu} has only {total} samples");
    for stack in stacks.keys() {
        let frames: Vec<&str> = stack.split(';').collect();
        let is_whole = frames.starts_with(&["process::start", "process::work"]);
        assert!(is_whole, "vCPU {vcpu}: {stack}");
    }
    for (function, truth) in FUNCTIONS.iter().zip(truth) {
        let has = |stack: &&String| stack.split(';').any(|frame| frame == *function);
        let count: u64 = stacks.keys().filter(has).map(|stack| stacks[stack]).sum();
        let share = 100.0 * count as f64 / total as f64;
        println!("vCPU {vcpu}: {function} has {share:.1} % of {total}, the truth is {truth} %");
        // If there are too few samples for 3 percentage points to be significant, standard errors count.
        let error = (truth * (100.0 - truth) / total as f64).sqrt();
        assert!(
            (share - truth).abs() <= f64::max(3.0, 4.0 * error),
            "vCPU {vcpu}: {function} has {share:.1} % of {total}"
        );
    }
}

#[test]
fn shares_and_stacks_of_one_vcpu_over_tcp() {
    let guest = Guest::start(true, 1);
    let output = guest.record(&["-F", "997", "-d", "8s", "--elf", image().to_str().unwrap()]);
    assert!(output.status.success(), "{}", said(&output));
    check_shares(&guest, 0, [50.0, 30.0, 20.0]);

    // Without the image, the recording has its build-id, by which a report finds it.
    let output = guest.record(&["-d", "1s"]);
    assert!(output.status.success(), "{}", said(&output));
    let bytes = std::fs::read(image()).unwrap();
    let id = uniprof_record::elf::build_id::of_bytes(&bytes).expect("the linker gives one");
    let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let folder = guest.folder.path().join("images");
    let place = folder.join(".build-id").join(&id[..2]);
    std::fs::create_dir_all(&place).unwrap();
    std::fs::copy(image(), place.join(&id[2..])).unwrap();
    let output = kit::uniprof()
        .args(["export", "-f", "folded", "--image-path"])
        .args([&folder, &guest.recording()])
        .output()
        .unwrap();
    let stacks = String::from_utf8_lossy(&output.stdout);
    assert!(stacks.contains("process::burn"), "{stacks}");
    assert!(guest.works() && soon(|| !guest.is_sampling.load(Ordering::SeqCst)));
}

/// Without frame pointers, the report unwinds the recorded stack bytes.
#[test]
fn shares_and_stacks_of_two_vcpus_by_stack_bytes_over_a_unix_socket() {
    let guest = Guest::start(false, 2);
    let image = image().to_str().unwrap();
    let output = guest.record(&["-F", "997", "-d", "10s", "--stack=2K", "--elf", image]);
    assert!(output.status.success(), "{}", said(&output));
    check_shares(&guest, 0, [50.0, 30.0, 20.0]);
    check_shares(&guest, 1, [70.0, 20.0, 10.0]);
}

/// Registers, stacks and the image of another processor, which is emulated.
#[test]
fn shares_and_stacks_of_an_aarch64_guest() {
    const TARGET: &str = "aarch64-unknown-linux-musl";
    let added = Command::new("rustup")
        .args(["target", "add", TARGET])
        .output();
    if !added.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: Rust's library for {TARGET} can't be had here by rustup");
        return;
    }
    let folder = build(&["--target", TARGET], Some("rust-lld"));
    let image = folder.join(TARGET).join("release/examples/process");
    let mut command = Command::new("qemu-aarch64");
    command.arg(&image);
    let guest = Guest::run(command, false, 1, &[]);
    let output = guest.record(&["-F", "499", "-d", "12s", "--elf", image.to_str().unwrap()]);
    assert!(output.status.success(), "{}", said(&output));
    check_shares(&guest, 0, [50.0, 30.0, 20.0]);
}

#[test]
fn a_hundred_recorders_killed_at_random_moments() {
    let guest = Guest::start(false, 1);
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let is_sampling = || guest.is_sampling.load(Ordering::SeqCst);
    for turn in 0..100 {
        // A third of the recorders are killed while they take samples.
        let waits = turn % 3 == 0;
        assert!(
            !waits || soon(|| !is_sampling()),
            "kill {turn}: it samples for nobody"
        );
        let mut recorder = guest.recorder(&["-F", "997"]).spawn().unwrap();
        assert!(
            !waits || soon(is_sampling),
            "kill {turn}: it does not attach"
        );
        std::thread::sleep(Duration::from_millis(random.u64(1..150)));
        recorder.kill().unwrap();
        recorder.wait().unwrap();
        assert!(turn % 10 > 0 || guest.works(), "kill {turn}");
    }
    assert!(
        soon(|| !guest.is_sampling.load(Ordering::SeqCst)),
        "it samples for nobody"
    );
    let output = guest.record(&["-F", "997", "-d", "1s"]);
    assert!(said(&output).contains("Recorded"), "{}", said(&output));
    assert!(guest.works());
}

#[test]
fn a_thousand_clients_attach_and_leave_in_every_way() {
    let guest = Guest::start(false, 1);
    for turn in 0..1000u64 {
        let mut stream = guest.connect();
        wire::say(&mut stream, wire::ATTACH, &wire::attach(turn)).unwrap();
        let (kind, hello) = wire::read(&mut stream).unwrap();
        assert_eq!((kind, wire::word(&hello, 0)), (wire::HELLO, turn), "{turn}");
        wire::say(&mut stream, wire::START, &wire::start(1_000_000, 16, 64)).unwrap();
        wire::read_kind(&mut stream, wire::STATE).unwrap();
        match turn % 4 {
            0 => wire::say(&mut stream, wire::DETACH, &[]).unwrap(),
            1 => drop(wire::read_kind(&mut stream, wire::SAMPLE).unwrap()),
            2 => {
                wire::say(&mut stream, wire::STOP, &[]).unwrap();
                wire::read_kind(&mut stream, wire::STATE).unwrap();
            }
            _ => std::io::Write::write_all(&mut stream, b"uA\x04\0\x08").unwrap(),
        }
        drop(stream);
        // The agent has to see the end of one connection before it accepts the next.
        let is_still_taken = || {
            let mut stream = guest.connect();
            wire::say(&mut stream, wire::ATTACH, &wire::attach(0)).unwrap();
            wire::read(&mut stream).unwrap().0 == wire::BUSY
        };
        assert!(soon(|| !is_still_taken()), "{turn}");
        std::thread::sleep(Duration::from_millis(3));
    }
    assert!(guest.works() && soon(|| !guest.is_sampling.load(Ordering::SeqCst)));
}

#[test]
fn a_second_client_another_image_and_a_guest_that_ends_are_told() {
    let mut guest = Guest::start(false, 1);
    let mut first = guest.connect();
    wire::say(&mut first, wire::ATTACH, &wire::attach(1)).unwrap();
    wire::read_kind(&mut first, wire::HELLO).unwrap();
    let output = guest.record(&["-d", "1s"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said(&output).contains("another client is attached"),
        "{}",
        said(&output)
    );
    wire::say(&mut first, wire::DETACH, &[]).unwrap();
    drop(first);

    let own = kit::program();
    let elf = ["--elf", own.to_str().unwrap()];
    let other = || guest.record(&[&["-d", "1s"], &elf[..], &elf[..]].concat());
    let mut output = other();
    assert!(soon(|| {
        output = other();
        !said(&output).contains("another client")
    }));
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said(&output).contains("is not the image of the guest"),
        "{}",
        said(&output)
    );

    let recorder = guest.recorder(&["-F", "499", "-d", "60s"]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    guest.child.kill().unwrap();
    let output = recorder.wait_with_output().unwrap();
    assert!(
        said(&output).contains("the guest closed the connection"),
        "{}",
        said(&output)
    );
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
}

#[test]
fn the_doctor_looks_at_the_guest() {
    let guest = Guest::start(true, 2);
    let output = kit::uniprof()
        .args(["doctor", &guest.target])
        .output()
        .unwrap();
    let found = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{found}");
    for words in [
        "2 vCPUs, x86_64",
        "guest's clock: 1000000000",
        "chains of frame pointers are whole",
        "uniprof record -d 30s",
    ] {
        assert!(
            found.contains(words) || cfg!(not(target_arch = "x86_64")),
            "{found}"
        );
    }
    let output = kit::uniprof()
        .args(["doctor", "agent:localhost:1"])
        .output()
        .unwrap();
    let found = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{found}");
    assert!(found.contains("nobody listens"), "{found}");
}

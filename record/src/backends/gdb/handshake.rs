//! The first exchange with a stub: its features, vCPUs and registers.
//!
//! Input: a new connection, for which the stub stops its guest. Output: a [`Guest`]. All limitations of a stub are
//! found here rather than in the sampler's loop.

use super::client::{Client, StopReply};
use super::description::{Description, MOST_BYTES};
use super::error::{GdbError, quote};
use super::packet::{hex_bytes, number};
use super::registers::{Layout, Unusable};
use uprof::Arch;

/// Most vCPUs behind one stub.
pub const MOST_VCPUS: usize = 512;
/// Least and most memory that one request reads, in bytes.
const LEAST_PIECE_BYTES: usize = 64;
const MOST_PIECE_BYTES: usize = 8192;

/// A vCPU of the stub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    /// The stub's name for it, such as `01` or `p1.1`; empty if the stub has no threads.
    pub id: String,
    /// Its number in the recording.
    pub number: u32,
    /// The stub's description of it, without its state.
    pub name: String,
}

/// How to resume the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Continue {
    /// `vCont;c`.
    All,
    /// The older `c`, after `Hc-1`.
    Plain,
}

impl Continue {
    /// The packet's payload.
    pub fn payload(self) -> &'static str {
        match self {
            Continue::All => "vCont;c",
            Continue::Plain => "c",
        }
    }
}

/// A stub and its guest.
#[derive(Debug, Clone)]
pub struct Guest {
    /// Positions of registers in a reply.
    pub layout: Layout,
    /// The vCPUs.
    pub threads: Vec<Thread>,
    /// How to resume it.
    pub resume: Continue,
    /// Bytes of memory that one request reads, a power of two.
    pub piece_bytes: usize,
    /// Whether memory comes as bytes (`x`) rather than as hexadecimal digits (`m`).
    pub binary: bool,
    /// Whether the stub reports which vCPUs are halted.
    pub tells_halted: bool,
    /// Whether one vCPU can be run for one instruction.
    pub steps: bool,
    /// Whether the stub may drop bytes right behind an interrupt. gdbserver does, if the program hasn't stopped
    /// yet when it reads the next byte. Only gdbserver supports QPassSignals, by which it is recognised.
    pub drops_behind_interrupt: bool,
}

/// Requests everything that sampling needs. Afterwards the guest is stopped.
///
/// # Errors
/// Says why it can't be sampled.
pub fn greet(client: &mut Client) -> Result<Guest, GdbError> {
    let features = ask_features(client)?;
    let has = |name: &str| features.split(';').any(|feature| feature == name);
    if client.ask(
        "for an end of acknowledgements",
        format_args!("QStartNoAckMode"),
    )? == b"OK"
    {
        client.acknowledges = false;
    }
    let status = client.ask("why the guest has stopped", format_args!("?"))?;
    match StopReply::parse(status) {
        Some(StopReply::Stopped(_)) => {}
        Some(StopReply::Exited(_) | StopReply::Killed(_)) => {
            return Err(client.refused("; the guest has ended"));
        }
        None => return Err(client.refused("; it does not serve whole guests")),
    }
    let (resume, steps) = ask_continue(client)?;
    let threads = ask_threads(client)?;
    let layout = ask_layout(client, has("qXfer:features:read+"))?;
    let mut guest = Guest {
        layout,
        threads,
        resume,
        piece_bytes: piece_bytes(&features),
        binary: has("binary-upload+"),
        tells_halted: false,
        steps,
        drops_behind_interrupt: has("QPassSignals+"),
    };
    ask_names(client, &mut guest)?;
    Ok(guest)
}

fn ask_features(client: &mut Client) -> Result<String, GdbError> {
    let asked = "what it can do";
    let question = "qSupported:qXfer:features:read+;vContSupported+;xmlRegisters=i386,arm";
    let mut reply = client.ask(asked, format_args!("{question}"))?.to_vec();
    // A stub that stops the guest for a connection reports that before any reply.
    while StopReply::parse(&reply).is_some() {
        reply = client.extra_reply()?.to_vec();
    }
    String::from_utf8(reply).map_err(|_| client.nonsense("it is not text"))
}

/// `PacketSize` counts characters, and a byte of memory takes two.
fn piece_bytes(features: &str) -> usize {
    let size = features
        .split(';')
        .find_map(|feature| number(feature.strip_prefix("PacketSize=")?.as_bytes()));
    let half = size.map_or(400, |size| size.min(1 << 20) as usize) / 2;
    let below = 1usize << half.max(1).ilog2();
    below.clamp(LEAST_PIECE_BYTES, MOST_PIECE_BYTES)
}

/// How to resume the guest, and whether one vCPU can be run for one instruction.
fn ask_continue(client: &mut Client) -> Result<(Continue, bool), GdbError> {
    let reply = client.ask("how it lets guests run", format_args!("vCont?"))?;
    let actions = reply.strip_prefix(b"vCont").unwrap_or_default();
    let has = |name: &[u8]| actions.split(|&byte| byte == b';').any(|one| one == name);
    if has(b"c") {
        return Ok((Continue::All, has(b"s")));
    }
    // The reply doesn't matter: a stub without threads may not know the request.
    client.ask("to let all vCPUs run", format_args!("Hc-1"))?;
    // There is no query for the older `s`. A stub without it refuses when it is used.
    Ok((Continue::Plain, true))
}

fn ask_threads(client: &mut Client) -> Result<Vec<Thread>, GdbError> {
    const ASKED: &str = "for its vCPUs";
    let mut ids: Vec<String> = Vec::new();
    let mut reply = client.ask(ASKED, format_args!("qfThreadInfo"))?.to_vec();
    while let Some(list) = reply.strip_prefix(b"m") {
        for id in list.split(|&byte| byte == b',') {
            let sound = |&byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b'p' | b'.');
            if id.is_empty() || id.len() > 40 || !id.iter().all(sound) {
                return Err(client.nonsense(format!("`{}` is no thread id", quote(id))));
            }
            if ids.len() >= MOST_VCPUS {
                return Err(client.nonsense(format!("it has more than {MOST_VCPUS} vCPUs")));
            }
            ids.push(String::from_utf8_lossy(id).into_owned());
        }
        reply = client.ask(ASKED, format_args!("qsThreadInfo"))?.to_vec();
    }
    if ids.is_empty() {
        // A stub without threads has one vCPU, which need not be selected.
        ids.push(String::new());
    }
    Ok(ids
        .into_iter()
        .enumerate()
        .map(|(index, id)| Thread {
            id,
            number: index as u32,
            name: format!("vcpu {index}"),
        })
        .collect())
}

fn ask_layout(client: &mut Client, has_description: bool) -> Result<Layout, GdbError> {
    let asked = "for its registers";
    let layout = if has_description {
        Layout::of_description(&ask_description(client)?)
    } else {
        let digits = client.ask(asked, format_args!("g"))?.len();
        match usual_arch(digits) {
            Some(arch) => Layout::usual(arch),
            None => {
                return Err(client.nonsense(format!(
                    "it describes no registers, and {digits} digits of them are neither \
                     x86-64's nor 64-bit Arm's"
                )));
            }
        }
    };
    layout.map_err(|problem| match problem {
        Unusable::Arch(name) if name.is_empty() => {
            GdbError::Arch(client.endpoint().clone(), "of an unknown kind".into())
        }
        Unusable::Arch(name) => GdbError::Arch(client.endpoint().clone(), quote(name.as_bytes())),
        Unusable::Missing(name) => client.nonsense(format!("register {name} is missing")),
    })
}

/// The instruction set by the number of digits in a `g` reply, for gdb's own two layouts with or without vector state.
fn usual_arch(digits: usize) -> Option<Arch> {
    match digits / 2 {
        // 17 words, 7 words of 32 bits, then x87 and SSE state.
        164 | 324 | 536..=616 => Some(Arch::X86_64),
        // 33 words and the 32-bit state, then 32 vectors and two words.
        268 | 780..=796 => Some(Arch::Aarch64),
        _ => None,
    }
}

fn ask_description(client: &mut Client) -> Result<Description, GdbError> {
    Description::read("target.xml", |name| {
        let mut text = Vec::new();
        // A character with a meaning in the protocol would change the request.
        let sound = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        if !name.chars().all(sound) || name.len() > 200 {
            return Ok(String::new());
        }
        while text.len() < MOST_BYTES {
            let offset = text.len();
            let reply = client.ask(
                "for the description of its registers",
                format_args!("qXfer:features:read:{name}:{offset:x},7f0"),
            )?;
            match reply.split_first() {
                Some((b'm', more)) if !more.is_empty() => text.extend_from_slice(more),
                Some((b'l', last)) => {
                    text.extend_from_slice(last);
                    break;
                }
                _ => return Err(client.refused("")),
            }
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    })
}

/// Requests the names of the vCPUs, and finds out whether the stub reports their state.
fn ask_names(client: &mut Client, guest: &mut Guest) -> Result<(), GdbError> {
    for thread in &mut guest.threads {
        if thread.id.is_empty() {
            continue;
        }
        let reply = client.ask(
            "for the name of a vCPU",
            format_args!("qThreadExtraInfo,{}", thread.id),
        )?;
        let mut text = [0; 96];
        let filled = hex_bytes(reply, &mut text);
        let text = String::from_utf8_lossy(&text[..filled]).into_owned();
        guest.tells_halted |= halted(reply).is_some();
        let name = text.split('[').next().unwrap_or_default().trim();
        if !name.is_empty() && !name.contains(char::is_control) {
            thread.name = name.to_owned();
        }
    }
    Ok(())
}

/// Whether a `qThreadExtraInfo` reply shows that the vCPU is halted; `None` if it doesn't show the state. QEMU writes
/// `CPU#0 [running]` or `CPU#0 [halted ]`.
pub fn halted(reply: &[u8]) -> Option<bool> {
    let mut text = [0; 96];
    let filled = hex_bytes(reply, &mut text);
    let contains = |word: &[u8]| text[..filled].windows(word.len()).any(|part| part == word);
    match (contains(b"[halted"), contains(b"[running")) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_pieces_that_fit_the_stub() {
        assert_eq!(piece_bytes("PacketSize=1000;multiprocess+"), 2048);
        assert_eq!(piece_bytes("qXfer:features:read+;PacketSize=47ff"), 8192);
        assert_eq!(piece_bytes(""), 128);
        assert_eq!(piece_bytes("PacketSize=0"), 64);
        assert_eq!(piece_bytes("PacketSize=ffffffffffffffff"), 8192);
    }

    #[test]
    fn a_halted_vcpu_is_told_by_its_name() {
        let hex = |text: &str| text.bytes().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(halted(hex("CPU#0 [halted ]").as_bytes()), Some(true));
        assert_eq!(halted(hex("cpu [running]").as_bytes()), Some(false));
        assert_eq!(halted(hex("Thread 1").as_bytes()), None);
        assert_eq!(halted(b"E01"), None);
    }
}

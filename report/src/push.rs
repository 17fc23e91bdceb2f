//! Profiles for servers of continuous profiling. Input: a recording. Output: messages as a server takes them, and what
//! its answers mean. [`PROTOCOLS`] is the table of servers. Nothing here sends: the program does.

pub mod answer;
mod slices;
mod pyroscope;
mod otlp;

pub use answer::{Answer, Verdict};

use crate::export::pprof::message as pb;
use crate::profile::Profile;
use crate::profile::gather::OnProgress;
use crate::recording::Recording;
use crate::stacks::Tables;
use std::io;

/// How one kind of server takes profiles: POST of a message over HTTP.
#[derive(Debug)]
pub struct Protocol {
    /// Its name for `--format`.
    pub name: &'static str,
    /// The servers that speak it, for the help text.
    pub about: &'static str,
    /// Its path, for an address without one.
    pub path: &'static str,
    /// Other paths by which an address is recognized.
    other_paths: &'static [&'static str],
    /// The port by which an address without a path is recognized.
    port: u16,
    /// The type of its messages.
    pub content_type: &'static str,
    /// Whether another attempt may succeed after an answer with this status.
    retries: fn(u16) -> bool,
    encode: fn(&Part<'_>) -> Vec<u8>,
    /// What an answer with a status of success says.
    accepted: fn(&[u8]) -> Verdict,
    /// The text of an answer that refuses.
    text: fn(&[u8]) -> Option<String>,
}

/// All protocols.
pub const PROTOCOLS: &[Protocol] = &[
    Protocol {
        name: "pyroscope",
        about: "Grafana Pyroscope's push API: pprof with an id",
        path: "/push.v1.PusherService/Push",
        other_paths: &[],
        port: 4040,
        content_type: "application/proto",
        retries: |status| matches!(status, 408 | 425 | 429 | 500 | 502..=504 | 506..=599),
        encode: pyroscope::encode,
        accepted: pyroscope::accepted,
        text: pyroscope::text,
    },
    Protocol {
        name: "otlp",
        about: "OpenTelemetry's profiles, schema 1.10 and 1.11: the Collector, and what it sends to",
        path: "/v1development/profiles",
        other_paths: &["/v1/profiles"],
        port: 4318,
        content_type: "application/x-protobuf",
        // Its specification forbids it after any other one: a Collector answers 500 to what it will never take.
        retries: |status| matches!(status, 429 | 502..=504),
        encode: otlp::encode,
        accepted: otlp::accepted,
        text: otlp::text,
    },
];

impl Protocol {
    /// The protocol of an address, by its path; by its port if it has no path.
    pub fn of_address(path: &str, port: Option<u16>) -> Option<&'static Protocol> {
        let is_bare = path.is_empty() || path == "/";
        PROTOCOLS.iter().find(|one| {
            let mut paths = std::iter::once(&one.path).chain(one.other_paths);
            paths.any(|known| path.ends_with(known)) || (is_bare && port == Some(one.port))
        })
    }
}

/// How a recording becomes profiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slicing {
    /// One for each so many nanoseconds.
    Every(u64),
    /// It is an interval of a longer one, between these times of its clock (nanoseconds), and becomes one.
    Interval([u64; 2]),
}

/// What to push.
pub struct Request<'a, 'l> {
    /// The recording.
    pub recording: &'a Recording,
    /// Tables of images, kept for the next recording.
    pub tables: &'a Tables<'l>,
    /// Whether to push where threads waited, instead of samples.
    pub is_off_cpu: bool,
    /// Receives the progress of reading.
    pub progress: &'a OnProgress<'a>,
    /// How it becomes profiles.
    pub slicing: Slicing,
}

/// One message.
pub struct Message {
    /// Its id: the same whenever this recording is pushed, in the same slices.
    pub id: [u8; 16],
    /// The start of its samples since 1970, UTC (nanoseconds); 0 if unknown.
    pub start_ns: i64,
    /// The body of the request.
    pub body: Vec<u8>,
}

/// A part of a recording that becomes one message.
struct Part<'a> {
    recording: &'a Recording,
    id: [u8; 16],
    /// The stacks and their values; without labels, since servers make a series of each.
    profile: pb::Profile,
}

/// Passes a recording to `each` as messages of one protocol, in order of time.
///
/// # Errors
/// The recording has no identity, or `each` fails.
pub fn messages(
    request: &Request<'_, '_>,
    protocol: &Protocol,
    each: &mut dyn FnMut(Message) -> io::Result<()>,
) -> io::Result<Profile> {
    slices::parts(request, &mut |part: Part<'_>| {
        each(Message {
            id: part.id,
            start_ns: part.profile.time_nanos,
            body: (protocol.encode)(&part),
        })
    })
}

/// A hash that is the same in every version (FNV-1a, of 64 bits).
pub fn hash(words: &[&[u8]]) -> u64 {
    let bytes = words.iter().copied().flatten();
    bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// The service that a recording is of: its label, or else the name of its target.
fn service(recording: &Recording) -> &str {
    let labels = &recording.metadata().labels;
    let label = labels.iter().find(|(key, _)| key == "service");
    label.map_or(recording.subject(), |(_, value)| value)
}

//! Agents that lie, send garbage, fall silent or die: sound samples are kept, errors are reported, and both
//! in bounded time.

mod wire;

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// The hello of an agent with one vCPU, whose clock has one tick a nanosecond.
fn hello(nonce: u64) -> Vec<u8> {
    let mut hello = Vec::from(nonce.to_le_bytes());
    hello.extend([1, 0, 0, 0, 1, 0, 0, 0]);
    hello.extend(1_000_000_000u64.to_le_bytes());
    hello.extend([0; 80]);
    hello.extend(b"fake");
    hello[68] = 4;
    hello[60..64].copy_from_slice(&256u32.to_le_bytes());
    hello[64..68].copy_from_slice(&1024u32.to_le_bytes());
    hello
}

/// A sample without callers.
fn sample(vcpu: u32, ticks: u64) -> Vec<u8> {
    let mut sample = Vec::from(u64::from(vcpu).to_le_bytes());
    sample.extend(7u64.to_le_bytes());
    for word in [ticks, 0x1000, 0x8000, 0x8000, 0, 100] {
        sample.extend(u64::to_le_bytes(word));
    }
    sample
}

/// The clock of the fake guest.
fn now() -> u64 {
    let passed = std::time::UNIX_EPOCH.elapsed().unwrap();
    passed.as_nanos() as u64
}

/// Answers the attach with the words of the hello as `change` alters them, and answers pings. After the
/// start, it sends what `then` returns, which is called with the number of each ping.
fn converse(
    mut stream: UnixStream,
    change: impl Fn(&mut Vec<u8>),
    answers_pings: bool,
    mut then: impl FnMut(&mut UnixStream, u32) -> std::io::Result<bool>,
) -> std::io::Result<()> {
    let (mut is_started, mut turn) = (false, 0);
    loop {
        let (kind, payload) = wire::read(&mut stream)?;
        match kind {
            wire::ATTACH => {
                let mut hello = hello(wire::word(&payload, 8));
                change(&mut hello);
                wire::say(&mut stream, wire::HELLO, &hello)?;
            }
            wire::START => is_started = true,
            wire::PING if answers_pings => {
                let clock = [&payload[..8], &now().to_le_bytes()].concat();
                wire::say(&mut stream, wire::CLOCK, &clock)?;
            }
            wire::STOP => wire::say(&mut stream, wire::STATE, &[0; 24])?,
            wire::DETACH => return Ok(()),
            _ => {}
        }
        if is_started {
            turn += 1;
            if !then(&mut stream, turn)? {
                return Ok(());
            }
        }
    }
}

/// Records for two seconds; `agent` handles the first connection. Returns status and messages.
fn record(agent: impl FnOnce(UnixStream) + Send + 'static) -> (i32, String) {
    record_for("2s", agent)
}

fn record_for(duration: &str, agent: impl FnOnce(UnixStream) + Send + 'static) -> (i32, String) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("agent");
    let listener = UnixListener::bind(&socket).unwrap();
    let thread = std::thread::spawn(move || agent(listener.accept().unwrap().0));
    let began = Instant::now();
    let output = kit::uniprof()
        .args(["record", "-F", "499", "-d", duration, "-o"])
        .arg(folder.path().join("run.uprof"))
        .arg(format!("agent:{}", socket.display()))
        .output()
        .unwrap();
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "it takes too long"
    );
    thread.join().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap(), said)
}

/// Asserts the message, and the exit status.
#[track_caller]
fn expect(result: &(i32, String), status: i32, words: &[&str]) {
    let (found, said) = result;
    assert_eq!(*found, status, "{said}");
    for word in words {
        assert!(said.contains(word), "no «{word}» in {said}");
    }
}

fn nothing(_: &mut Vec<u8>) {}

#[test]
fn who_is_no_agent_is_told_so() {
    let web = record(|mut stream| {
        let _ = stream.read(&mut [0; 100]);
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .unwrap();
    });
    expect(&web, 2, &["closed the connection", "is there an agent"]);
    let noise = record(|mut stream| {
        let noise = b"uA\x84\0\x10\x27\0\0 no frame ".repeat(1000);
        while stream.write_all(&noise).is_ok() {}
    });
    expect(
        &noise,
        2,
        &[
            "does not speak the agent's protocol soundly",
            "damaged frames",
        ],
    );
    let mute = record(|stream| {
        std::thread::sleep(Duration::from_secs(7));
        drop(stream);
    });
    expect(
        &mute,
        2,
        &["did not answer within 5 s", "another one attached"],
    );
}

#[test]
fn a_hello_that_cannot_be_is_refused() {
    let with = |change: fn(&mut Vec<u8>)| {
        record(move |stream| {
            let _ = converse(stream, change, true, |_, _| Ok(true));
        })
    };
    expect(&with(|hello| hello[12] = 0), 2, &["what can't be: 0 vCPUs"]);
    expect(&with(|hello| hello[14] = 9), 2, &["vCPUs"]);
    expect(&with(|hello| hello[10] = 7), 2, &["instruction set 7"]);
    expect(
        &with(|hello| hello[16..24].fill(0)),
        2,
        &["a clock of 0 ticks"],
    );
    expect(&with(|hello| hello[68] = 60), 2, &["a hello of 108 bytes"]);
    expect(&with(|hello| hello[8] = 2), 2, &["speaks version 2"]);
    expect(&with(|hello| hello[0] ^= 1), 2, &["did not answer"]);
}

#[test]
fn samples_that_lie_are_left_out_and_the_others_kept() {
    let result = record(|stream| {
        let _ = converse(stream, nothing, true, |stream, _| {
            let now = now();
            wire::say(stream, wire::SAMPLE, &sample(0, now))?;
            wire::say(stream, wire::SAMPLE, &sample(9, now))?;
            wire::say(stream, wire::SAMPLE, &sample(0, now - 1000))?;
            wire::say(stream, wire::SAMPLE, &sample(0, now + 60_000_000_000))?;
            wire::say(stream, wire::SAMPLE, &sample(0, now)[..50])?;
            stream.write_all(b"uAnoise")?;
            wire::say(stream, wire::SAMPLE, &sample(0, now + 1))?;
            Ok(true)
        });
    });
    let counted = [
        "of no vcpu",
        "times that go back",
        "times that cannot be",
        "misshapen samples",
    ];
    expect(&result, 1, &counted);
    let samples = result.1.split_once("Recorded ").unwrap().1;
    let samples: u32 = samples.split(' ').next().unwrap().parse().unwrap();
    assert!((10..=40).contains(&samples), "{}", result.1);
}

#[test]
fn a_flood_of_samples_is_cut() {
    let result = record(|stream| {
        let _ = converse(stream, nothing, true, |stream, _| {
            let many: Vec<u8> = (0..5000)
                .flat_map(|tick| wire::frame(wire::SAMPLE, &sample(0, now() + tick)))
                .collect();
            stream.write_all(&many)?;
            Ok(true)
        });
    });
    expect(&result, 1, &["samples beyond the rate"]);
}

#[test]
fn who_dies_in_the_middle_or_falls_silent_is_told() {
    // The limit is longer than the guest lives, however busy the machine is.
    let dies = record_for("60s", |stream| {
        let _ = converse(stream, nothing, true, |stream, turn| {
            wire::say(stream, wire::SAMPLE, &sample(0, now()))?;
            if turn == 3 {
                stream.write_all(&wire::frame(wire::SAMPLE, &sample(0, now()))[..30])?;
            }
            Ok(turn < 3)
        });
    });
    expect(
        &dies,
        0,
        &["the guest closed the connection", "Recorded 3 samples"],
    );
    let clockless = record(|stream| {
        let _ = converse(stream, nothing, false, |_, _| Ok(true));
    });
    expect(&clockless, 2, &["did not answer within 1 s"]);
}

#[test]
fn an_agent_that_falls_silent_is_given_up_after_ten_seconds() {
    let result = record_for("60s", |stream| {
        let _ = converse(stream, nothing, true, |stream, turn| {
            wire::say(stream, wire::SAMPLE, &sample(0, now()))?;
            if turn == 3 {
                // Stays until the recorder has gone, however busy the machine is.
                let _ = stream.read_to_end(&mut Vec::new());
            }
            Ok(turn < 3)
        });
    });
    expect(
        &result,
        2,
        &["has said nothing for 10 s", "Recorded 3 samples"],
    );
}

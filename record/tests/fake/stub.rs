//! A fake gdb stub and a fake QEMU monitor: they reply as real ones do, for a guest that doesn't exist.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The state of a fake guest.
#[derive(Debug, Default)]
pub struct State {
    /// Whether it is paused.
    pub stands: AtomicBool,
    /// Whether it has ended.
    pub ended: AtomicBool,
}

/// Starts a stub that listens in `folder`. Its guest has two vCPUs.
pub fn stub(folder: &Path, state: &Arc<State>) -> PathBuf {
    let (path, state) = (folder.join("gdb"), Arc::clone(state));
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            // In QEMU, a connection stops the guest.
            state.stands.store(true, Ordering::SeqCst);
            let _ = converse(stream, &state);
        }
    });
    path
}

fn converse(mut stream: UnixStream, state: &State) -> std::io::Result<()> {
    let mut bytes = BufReader::new(stream.try_clone()?);
    loop {
        let mut byte = [0];
        bytes.read_exact(&mut byte)?;
        match byte {
            [3] if state.ended.load(Ordering::SeqCst) => send(&mut stream, "W00")?,
            [3] if !state.stands.swap(true, Ordering::SeqCst) => send(&mut stream, "T02thread:1;")?,
            [b'$'] => {
                let mut packet = Vec::new();
                bytes.read_until(b'#', &mut packet)?;
                bytes.read_exact(&mut [0; 2])?;
                packet.pop();
                stream.write_all(b"+")?;
                let packet = String::from_utf8_lossy(&packet);
                if matches!(&*packet, "vCont;c" | "D") {
                    state.stands.store(false, Ordering::SeqCst);
                }
                if packet != "vCont;c" {
                    send(&mut stream, &answer(&packet))?;
                }
            }
            _ => {}
        }
    }
}

fn send(stream: &mut UnixStream, payload: &str) -> std::io::Result<()> {
    let sum = payload.bytes().fold(0u8, u8::wrapping_add);
    stream.write_all(format!("${payload}#{sum:02x}").as_bytes())
}

fn answer(packet: &str) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    match packet {
        "?" => "T02thread:1;".into(),
        "vCont?" => "vCont;c;C;s;S".into(),
        "qfThreadInfo" => "m1,2".into(),
        "qsThreadInfo" => "l".into(),
        "D" => "OK".into(),
        "g" => {
            // 17 words and seven half words, gdb's layout without a target description.
            let mut words = [0u64; 21];
            (words[6], words[7], words[16]) = (0x8000, 0x8000, 0x1000);
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            hex(&bytes[..164])
        }
        _ if packet.starts_with("qSupported") => "PacketSize=1000".into(),
        _ if packet.starts_with('H') => "OK".into(),
        _ => match packet.strip_prefix('m').and_then(|at| at.split_once(',')) {
            Some((address, length)) => {
                let number = |text| u64::from_str_radix(text, 16).unwrap();
                let mut bytes = vec![0; number(length) as usize];
                crate::fake::read_frames(number(address), &mut bytes);
                hex(&bytes)
            }
            None => String::new(),
        },
    }
}

/// Starts a monitor that listens in `folder`, for a machine with the stub at `stub`.
pub fn monitor(folder: &Path, stub: &Path) -> PathBuf {
    let path = folder.join("qmp");
    let listener = UnixListener::bind(&path).unwrap();
    let device = format!("disconnected:unix:{},server=on", stub.display());
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let _ = stream.write_all(b"{\"QMP\": {}}\n");
            for line in lines.map_while(Result::ok) {
                let of = |command| line.contains(&format!("\"{command}\""));
                let answer = match () {
                    () if of("qom-get") => r#"{"error": {"desc": "there is none"}}"#.into(),
                    () if of("query-target") => r#"{"return": {"arch": "x86_64"}}"#.into(),
                    () if of("query-status") => r#"{"return": {"status": "running"}}"#.into(),
                    () if of("query-memdev") => r#"{"return": []}"#.into(),
                    () if of("query-chardev") => {
                        format!(r#"{{"return": [{{"label": "gdb", "filename": "{device}"}}]}}"#)
                    }
                    () => r#"{"return": {}}"#.to_string(),
                };
                let _ = stream.write_all(format!("{answer}\n").as_bytes());
            }
        }
    });
    path
}

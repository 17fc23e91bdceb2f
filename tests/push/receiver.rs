//! A server that receives profiles, with the checks of Pyroscope's source on what it gets. How it answers is up to the
//! test.

use flate2::read::GzDecoder;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// One request.
pub struct Received {
    pub path: String,
    headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Received {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// How a request is answered.
pub enum Reply {
    Answer {
        status: u16,
        headers: String,
        body: Vec<u8>,
    },
    /// Not at all; the connection stays open.
    Silence,
    /// A byte of an endless head now and then.
    Drops,
    /// The connection ends, as if the server were killed.
    HangUp,
}

impl Reply {
    pub fn answer(status: u16, content_type: &str, body: &str) -> Reply {
        Reply::bytes(status, content_type, body.as_bytes())
    }

    pub fn bytes(status: u16, content_type: &str, body: &[u8]) -> Reply {
        let headers = match content_type {
            "" => String::new(),
            one => format!("Content-Type: {one}\r\n"),
        };
        Reply::Answer {
            status,
            headers,
            body: body.to_vec(),
        }
    }

    pub fn redirect(status: u16, to: &str) -> Reply {
        let headers = format!("Location: {to}\r\n");
        Reply::Answer {
            status,
            headers,
            body: Vec::new(),
        }
    }
}

/// A running server. It ends when dropped.
pub struct Receiver {
    port: u16,
    received: Arc<Mutex<Vec<Received>>>,
    is_over: Arc<AtomicBool>,
    listening: Option<thread::JoinHandle<()>>,
}

impl Receiver {
    pub fn start(reply: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let received = Arc::new(Mutex::new(Vec::new()));
        let is_over = Arc::new(AtomicBool::new(false));
        let (requests, over) = (received.clone(), is_over.clone());
        let reply = Arc::new(reply);
        let listening = thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let (requests, over, reply) = (requests.clone(), over.clone(), reply.clone());
                // A client that was killed ends in the middle.
                thread::spawn(move || {
                    stream
                        .ok()
                        .and_then(|stream| serve(stream, &requests, &over, &*reply))
                });
            }
        });
        Receiver {
            port,
            received,
            is_over,
            listening: Some(listening),
        }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// The requests since the last call.
    pub fn take(&self) -> Vec<Received> {
        std::mem::take(&mut self.received.lock().unwrap())
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(listening) = self.listening.take() {
            let _ = listening.join();
        }
    }
}

fn serve(
    mut stream: TcpStream,
    requests: &Mutex<Vec<Received>>,
    over: &AtomicBool,
    reply: &dyn Fn(&Received) -> Reply,
) -> Option<()> {
    let received = read_request(&stream)?;
    let answer = reply(&received);
    requests.lock().unwrap().push(received);
    match answer {
        Reply::Answer {
            status,
            headers,
            body,
        } => {
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status} x\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n"
            );
            stream.write_all(&[head.as_bytes(), &body].concat()).ok()?;
        }
        Reply::HangUp => {}
        waits @ (Reply::Silence | Reply::Drops) => {
            let is_dropping = matches!(waits, Reply::Drops);
            stream
                .write_all(if is_dropping {
                    b"HTTP/1.1 200 x\r\nX: "
                } else {
                    b""
                })
                .ok()?;
            while !over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(50));
                stream
                    .write_all(if is_dropping { b"x" } else { b"" })
                    .ok()?;
            }
        }
    }
    Some(())
}

fn read_request(stream: &TcpStream) -> Option<Received> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let length: usize = headers.get("content-length")?.parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Received {
        path,
        headers,
        body,
    })
}

/// A field of a protobuf message.
#[derive(Clone)]
enum Field {
    Number(u64),
    Bytes(Vec<u8>),
}

impl Field {
    fn bytes(&self) -> &[u8] {
        match self {
            Field::Bytes(bytes) => bytes,
            Field::Number(_) => panic!("a number instead of bytes"),
        }
    }

    fn number(&self) -> u64 {
        match self {
            Field::Number(number) => *number,
            Field::Bytes(_) => panic!("bytes instead of a number"),
        }
    }
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            break;
        }
    }
    number
}

fn varints(mut bytes: &[u8]) -> Vec<u64> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        all.push(varint(&mut bytes));
    }
    all
}

/// The fields of a message, by number.
fn fields(mut bytes: &[u8]) -> BTreeMap<u64, Vec<Field>> {
    let mut found: BTreeMap<u64, Vec<Field>> = BTreeMap::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let value = match key & 7 {
            0 => Field::Number(varint(&mut bytes)),
            2 => {
                let length = varint(&mut bytes) as usize;
                let (value, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(value.to_vec())
            }
            other => panic!("wire type {other}"),
        };
        found.entry(key >> 3).or_default().push(value);
    }
    found
}

fn text(field: &Field) -> String {
    String::from_utf8(field.bytes().to_vec()).unwrap()
}

fn all(found: &BTreeMap<u64, Vec<Field>>, number: u64) -> &[Field] {
    found.get(&number).map_or(&[], Vec::as_slice)
}

/// A series that passed the checks.
pub struct Series {
    pub labels: BTreeMap<String, String>,
    pub time_ns: u64,
    /// The sum of the first value of all samples.
    pub sum: i64,
    /// The texts of the profile.
    pub strings: Vec<String>,
}

/// The id of the only profile of a request.
pub fn id_of(body: &[u8]) -> String {
    let series = fields(all(&fields(body), 1)[0].bytes());
    text(&all(&fields(all(&series, 2)[0].bytes()), 2)[0])
}

/// Checks a request as Pyroscope does, with its default limits and those of its older versions.
pub fn check(body: &[u8]) -> Result<Series, String> {
    let request = fields(body);
    let series = fields(all(&request, 1)[0].bytes());
    let mut labels = BTreeMap::new();
    for pair in all(&series, 1) {
        let pair = fields(pair.bytes());
        let (name, value) = (text(&all(&pair, 1)[0]), text(&all(&pair, 2)[0]));
        let is_name = |name: &str| {
            name.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        if !is_name(&name)
            || name.starts_with(|first: char| first.is_ascii_digit())
            || value.len() > 2048
        {
            return Err(format!("invalid label {name}"));
        }
        if labels.insert(name.clone(), value).is_some() {
            return Err(format!("duplicate label name {name}"));
        }
    }
    if labels.len() > 30
        || labels.get("service_name").is_none_or(String::is_empty)
        || !labels.contains_key("__name__")
    {
        return Err("labels".to_owned());
    }
    let id = id_of(body);
    let is_digit = |(at, letter): (usize, char)| match at {
        8 | 13 | 18 | 23 => letter == '-',
        _ => letter.is_ascii_hexdigit(),
    };
    if id.len() != 36 || !id.char_indices().all(is_digit) {
        return Err(format!("invalid UUID {id}"));
    }
    let sample = fields(all(&series, 2)[0].bytes());
    let mut unpacked = Vec::new();
    let packed = all(&sample, 1)[0].bytes();
    GzDecoder::new(packed)
        .read_to_end(&mut unpacked)
        .map_err(|error| error.to_string())?;
    let (time_ns, sum, strings) = check_profile(&unpacked)?;
    Ok(Series {
        labels,
        time_ns,
        sum,
        strings,
    })
}

/// Checks a pprof profile. Returns its time, the sum of its first values, and its texts.
fn check_profile(bytes: &[u8]) -> Result<(u64, i64, Vec<String>), String> {
    if bytes.len() > 2_000_000 {
        return Err("beyond the burst".to_owned());
    }
    let profile = fields(bytes);
    let strings: Vec<String> = all(&profile, 6).iter().map(text).collect();
    if strings.first().is_none_or(|first| !first.is_empty()) {
        return Err("string 0 should be empty string".to_owned());
    }
    let types = all(&profile, 1);
    for one in types {
        let name = &strings[all(&fields(one.bytes()), 1)[0].number() as usize];
        if name.contains('-') || name.is_empty() {
            return Err(format!("sample type contains - or is empty: {name}"));
        }
    }
    for number in [4, 5] {
        for one in all(&profile, number) {
            if all(&fields(one.bytes()), 1)
                .first()
                .is_none_or(|id| id.number() == 0)
            {
                return Err("location or function id is 0".to_owned());
            }
        }
    }
    let samples = all(&profile, 2);
    if types.is_empty() || samples.is_empty() || samples.len() > 16_000 {
        return Err("no samples, or too many".to_owned());
    }
    let mut sum = 0;
    for sample in samples {
        let sample = fields(sample.bytes());
        let values = varints(all(&sample, 2)[0].bytes());
        if values.len() != types.len() {
            return Err("sample value length mismatch".to_owned());
        }
        if values.iter().any(|value| *value as i64 <= 0) || !all(&sample, 3).is_empty() {
            return Err("a value that is dropped, or a label that makes a series".to_owned());
        }
        if varints(all(&sample, 1)[0].bytes()).len() > 1000 {
            return Err("a stack that is cut".to_owned());
        }
        sum += values[0] as i64;
    }
    let time_ns = all(&profile, 9).first().map_or(0, Field::number);
    Ok((time_ns, sum, strings))
}

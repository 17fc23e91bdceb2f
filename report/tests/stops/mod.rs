//! Stops of a program as gdb wrote them (see gdb/stops.py). Input: text. Output: registers, stack bytes,
//! gdb's frames and the mapped modules.

#![allow(dead_code)] // each test uses only a part

pub mod compare;
pub mod driver;
pub mod machine;
pub mod oracle;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use uniprof_report::images::Image;
use uniprof_report::unwind::{Module, Stack, UnwindRules, Unwinder};
use uprof::{Arch, Registers};

pub struct GdbFrame {
    pub pc: u64,
    pub name: String,
    pub is_signal: bool,
}

pub struct Stopped {
    pub registers: Registers,
    pub stack_base: u64,
    pub stack: Vec<u8>,
    pub frames: Vec<GdbFrame>,
}

pub struct Dump {
    pub stops: Vec<Stopped>,
    pub modules: Vec<Module>,
}

impl Stopped {
    pub fn memory(&self) -> Stack<'_> {
        Stack {
            base: self.stack_base,
            bytes: &self.stack,
        }
    }

    pub fn is_in_signal(&self) -> bool {
        self.frames.iter().any(|frame| frame.is_signal)
    }

    fn parse(value: &Value) -> Stopped {
        let mut registers = Registers::default();
        for (number, value) in value["registers"].as_object().unwrap() {
            registers.set(number.parse().unwrap(), value.as_u64().unwrap());
        }
        let frames = value["frames"]
            .as_array()
            .unwrap()
            .iter()
            .map(|frame| GdbFrame {
                pc: frame["pc"].as_u64().unwrap(),
                name: frame["name"].as_str().unwrap_or("??").to_owned(),
                is_signal: frame["kind"] == "signal",
            });
        Stopped {
            registers,
            stack_base: value["stack"][0].as_u64().unwrap(),
            stack: unhex(value["stack"][1].as_str().unwrap()),
            frames: frames.collect(),
        }
    }
}

impl Dump {
    pub fn read(path: &Path) -> Result<Dump, String> {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        let lines = text.lines().map(serde_json::from_str::<Value>);
        let mut lines = lines
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| error.to_string())?;
        let last = lines.pop().ok_or("no stop")?;
        if last["maps"].is_null() {
            return Err("gdb stopped early".to_owned());
        }
        Ok(Dump {
            stops: lines.iter().map(Stopped::parse).collect(),
            modules: modules(&last),
        })
    }

    pub fn unwinder(&self) -> Unwinder {
        Unwinder::new(Arch::X86_64, self.modules.clone())
    }
}

fn modules(last: &Value) -> Vec<Module> {
    let mut tables: HashMap<String, (Arc<Image>, Arc<UnwindRules>)> = HashMap::new();
    let mut modules = Vec::new();
    for map in last["maps"].as_array().unwrap() {
        let path = map[3].as_str().unwrap();
        let image = match path {
            "[vdso]" => Image::from_bytes(path, unhex(last["vdso"].as_str().unwrap())),
            _ => Image::open(Path::new(path)),
        };
        let Ok(image) = image else { continue };
        let (image, rules) = tables.entry(path.to_owned()).or_insert_with(|| {
            let image = Arc::new(image);
            let rules = UnwindRules::of(&image, None);
            (image, Arc::new(rules))
        });
        let start = map[0].as_u64().unwrap();
        modules.push(Module {
            start,
            end: map[1].as_u64().unwrap(),
            bias: image
                .segments()
                .bias_of_mapping(start, map[2].as_u64().unwrap())
                .unwrap(),
            rules: Arc::clone(rules),
            image: Some(Arc::clone(image)),
        });
    }
    modules
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16).unwrap() as u8;
    text.as_bytes()
        .chunks(2)
        .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
        .collect()
}

//! A synthetic kernel's memory, in each existing layout.

use super::*;
use crate::orc::{Base, FramePointer, Kind, Meaning};

/// Memory that begins at an address; the rest is missing.
struct Made {
    start: u64,
    bytes: Vec<u8>,
}

impl KernelMemory for Made {
    fn read(&mut self, address: u64, into: &mut [u8]) -> usize {
        let Some(at) = address.checked_sub(self.start) else {
            return 0;
        };
        let rest = self.bytes.get(at as usize..).unwrap_or_default();
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        count
    }
}

const START: u64 = 0xffff_ffff_8100_0000;

/// The relative order of the tables.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Order {
    /// Up to 6.1, with offsets, with those of processors' data, or with addresses.
    Offsets,
    PerProcessor,
    Addresses,
    /// With an order by name, 6.2 to 6.4.
    ByName,
    /// Since 6.5.
    Behind,
}

/// Symbols of `made`: addresses, types and names.
fn symbols() -> Vec<(u64, String)> {
    let mut all: Vec<(u64, String)> = (0..1000)
        .map(|number| (START + 0x1000 + number * 16, format!("tfunction_{number}")))
        .collect();
    all.insert(0, (START, "T_stext".into()));
    // Its length needs more than one byte.
    all.push((START + 0x9000, format!("t{}", "long_".repeat(80))));
    all.push((START + 0x9000, "Tbest".into()));
    all.push((START + 0xa000, "T_etext".into()));
    all.push((START + 0xb000, "Ddata".into()));
    all
}

fn align(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(8), 0);
}

/// A kernel's memory, and the address of its digits.
fn made(order: Order) -> (Made, u64) {
    let symbols = symbols();
    let mut out = vec![0x90; 70_000];
    align(&mut out);
    let base = match order {
        Order::PerProcessor => START - 1,
        _ => START,
    };
    let places = |out: &mut Vec<u8>| {
        for (address, _) in &symbols {
            match order {
                Order::Addresses => out.extend(address.to_le_bytes()),
                Order::PerProcessor => {
                    let below = -1 - (address - base) as i64;
                    out.extend((below as i32).to_le_bytes());
                }
                _ => out.extend(((address - base) as u32).to_le_bytes()),
            }
        }
        align(out);
        if order != Order::Addresses {
            out.extend(base.to_le_bytes());
        }
    };
    if order != Order::Behind {
        places(&mut out);
    }
    out.extend((symbols.len() as u64).to_le_bytes());
    let names = out.len();
    let mut markers = Vec::new();
    for (index, (_, name)) in symbols.iter().enumerate() {
        if index % 256 == 0 {
            markers.push((out.len() - names) as u32);
        }
        match name.len() {
            short @ ..128 => out.push(short as u8),
            long => out.extend([long as u8 | 0x80, (long >> 7) as u8]),
        }
        out.extend(name.as_bytes());
    }
    align(&mut out);
    markers
        .iter()
        .for_each(|marker| out.extend(marker.to_le_bytes()));
    align(&mut out);
    if order == Order::ByName {
        (0..symbols.len()).for_each(|index| out.extend([0, (index >> 8) as u8, index as u8]));
        align(&mut out);
    }
    // Tokens that occur in no name stand for several letters.
    let texts = (0..=255u8).map(|byte| match byte {
        33..=126 => char::from(byte).to_string(),
        other => format!("tk{other}"),
    });
    let (start, mut index, mut digits) = (out.len(), Vec::new(), 0);
    for (byte, text) in texts.enumerate() {
        if byte == usize::from(b'0') {
            digits = START + out.len() as u64;
        }
        index.push((out.len() - start) as u16);
        out.extend(text.as_bytes());
        out.push(0);
    }
    align(&mut out);
    index
        .iter()
        .for_each(|begins| out.extend(begins.to_le_bytes()));
    if order == Order::Behind {
        places(&mut out);
    }
    out.extend([0; 4096]);
    let made = Made {
        start: START,
        bytes: out,
    };
    (made, digits)
}

const ORDERS: [Order; 5] = [
    Order::Offsets,
    Order::PerProcessor,
    Order::Addresses,
    Order::ByName,
    Order::Behind,
];

#[test]
fn symbols_are_found_in_each_layout() {
    for order in ORDERS {
        let (mut memory, digits) = made(order);
        let mut seen = Vec::new();
        find(&mut memory, START, 1 << 20, &mut |_, at| {
            seen.push(at);
            false
        });
        assert_eq!(seen, [digits]);
        let kernel =
            Kernel::read(&mut memory, digits).unwrap_or_else(|why| panic!("{order:?}: {why}"));
        let mut read = Vec::new();
        kernel.kallsyms.each(|address, symbol| {
            read.push((address, format!("{}{}", symbol.kind, symbol.name)))
        });
        assert_eq!(read, symbols());
        let name = |address| {
            kernel
                .kallsyms
                .function(address)
                .map(|function| function.name)
        };
        assert_eq!(
            name(START + 0x1000 + 16 * 300 + 3).as_deref(),
            Some("function_300")
        );
        assert_eq!(name(START + 0x9001).as_deref(), Some("best"));
        assert_eq!(name(START + 0xb000), None, "data is no function");
        assert_eq!(kernel.kallsyms.function(START - 1), None);
        assert_eq!(kernel.text, START..START + 0xa000);
        assert!(kernel.orc.is_none());
    }
}

#[test]
fn tables_that_are_cut_or_changed_are_refused_or_read() {
    let mut dice = 1u64;
    let mut roll = |below: usize| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (dice >> 33) as usize % below
    };
    for order in ORDERS {
        let (whole, digits) = made(order);
        for _ in 0..40 {
            let mut memory = Made {
                start: START,
                bytes: whole.bytes.clone(),
            };
            let length = memory.bytes.len();
            match roll(3) {
                0 => memory.bytes.truncate(length - roll(20_000)),
                _ => (0..3).for_each(|_| memory.bytes[length - 1 - roll(40_000)] = roll(256) as u8),
            }
            if let Ok(kernel) = Kernel::read(&mut memory, digits) {
                kernel.kallsyms.each(|_, _| ());
                (0..0x1_0000).step_by(64).for_each(|at| {
                    kernel.kallsyms.function(START + at);
                });
            }
        }
    }
    // More than the limit, and none at all.
    let mut empty = Made {
        start: START,
        bytes: vec![0; 1 << 20],
    };
    assert!(Kernel::read(&mut empty, START + 4096).is_err());
    assert!(!find(&mut empty, START, u64::MAX, &mut |_, _| true) || empty.bytes.is_empty());
}

/// One rule: stack pointer's number, frame pointer's, bits.
fn rule(stack: i16, frame: i16, bits: u16) -> [u8; 6] {
    let mut out = [0; 6];
    out[..2].copy_from_slice(&stack.to_le_bytes());
    out[2..4].copy_from_slice(&frame.to_le_bytes());
    out[4..].copy_from_slice(&bits.to_le_bytes());
    out
}

/// Tables with a rule every 16 bytes from START on.
fn orc(rules: &[[u8; 6]]) -> Option<Orc> {
    let at = START + 0x10_0000;
    let places = (0..rules.len() as u64)
        .flat_map(|index| ((START + 16 * index).wrapping_sub(at + 4 * index) as i32).to_le_bytes());
    Orc::new(at, places.collect(), rules.concat())
}

fn call(base: Base, frame_pointer: FramePointer) -> Option<Meaning> {
    Some(Meaning::Frame {
        base,
        frame_pointer,
        kind: Kind::Call,
    })
}

#[test]
fn rules_mean_the_same_in_each_layout() {
    // Calls, the end of a stack and an interrupt's registers, as of 6.1, 6.3 and 6.4.
    let layouts = [
        [0x0005, 0x0014, 0x0400, 0x0105],
        [0x0005, 0x0014, 0x0800, 0x0505],
        [0x0205, 0x0214, 0x0100, 0x0b05],
    ];
    for [plain, saved, end, interrupt] in layouts {
        let rules = [
            rule(8, 0, plain),
            rule(16, -16, saved),
            rule(0, 0, end),
            rule(0, 0, interrupt),
            rule(8, 0, plain),
        ];
        let orc = orc(&rules).unwrap();
        let at = |index: u64| orc.find(START + 16 * index + 5);
        assert_eq!(at(0), call(Base::Register(7, 8), FramePointer::Kept));
        assert_eq!(
            at(1),
            call(Base::Register(6, 16), FramePointer::AtBase(-16))
        );
        assert_eq!(at(2), Some(Meaning::End));
        let Some(Meaning::Frame { kind, .. }) = at(3) else {
            panic!("an interrupt has a frame");
        };
        assert_eq!(kind, Kind::Registers);
        assert_eq!(orc.find(START - 1), None);
        assert!(!orc.rules().1.is_empty());
    }
}

#[test]
fn rules_with_many_expressions_have_each_once() {
    let begun = std::time::Instant::now();
    // Calls and interrupts.
    let rules: Vec<[u8; 6]> = (0..30_000)
        .flat_map(|number| [rule(number, 0, 0x0008), rule(number, 0, 0x0108)])
        .collect();
    let (set, rows) = orc(&rules).unwrap().rules();
    assert_eq!(rows.len(), rules.len() - 1);
    assert_eq!(set.expressions().count(), 30_000);
    assert!(begun.elapsed().as_secs() < 15, "{:?}", begun.elapsed());
}

#[test]
fn rules_that_are_not_in_order_or_not_as_many_are_refused() {
    let at = START;
    assert!(orc(&[rule(8, 0, 5)]).is_some());
    let places = [8i32, 0].map(i32::to_le_bytes).concat();
    assert!(Orc::new(at, places.clone(), [rule(8, 0, 5); 2].concat()).is_none());
    assert!(Orc::new(at, places, rule(8, 0, 5).to_vec()).is_none());
    let mut memory = Made {
        start: START,
        bytes: vec![0; 64],
    };
    let read = |memory: &mut Made, places: u64, rules: u64| {
        Orc::read(memory, START..START + places, START..START + rules).is_some()
    };
    assert!(!read(&mut memory, 0, 0));
    assert!(
        !read(&mut memory, 4 * ((4 << 20) + 1), 6 * ((4 << 20) + 1)),
        "too many"
    );
    assert!(!read(&mut memory, 400, 600), "missing memory");
    assert!(!read(&mut memory, u64::MAX - START, 0));
}

const ANONYMOUS: u32 = 2;

/// BTF of a structure with two members and an anonymous structure, which has type number `inner`.
fn types(inner: u32) -> Vec<u8> {
    let texts = b"\0task_struct\0tgid\0comm\0int\0pgd\0";
    let at = |name: &str| {
        let wanted = [name.as_bytes(), &[0]].concat();
        let found = texts.windows(wanted.len()).position(|text| text == wanted);
        found.unwrap() as u32
    };
    let words = [
        // An integer; its encoding follows.
        vec![at("int"), 1 << 24, 4, 32],
        // The anonymous structure: a member 8 bytes into it.
        vec![0, 4 << 24 | 1, 16, at("pgd"), 1, 64],
        vec![at("task_struct"), 4 << 24 | 3, 32],
        vec![at("tgid"), 1, 32, at("comm"), 1, 64, 0, inner, 128],
    ]
    .concat();
    let types: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
    let length = types.len() as u32;
    let sections = [24, 0, length, length, texts.len() as u32].map(u32::to_le_bytes);
    let header = [&[0x9f, 0xeb, 1, 0][..], &sections.concat()].concat();
    [&header[..], &types, texts].concat()
}

#[test]
fn members_are_found_where_types_say() {
    let btf = Btf::new(types(ANONYMOUS)).unwrap();
    let places = btf.members("task_struct", ["pgd", "tgid", "comm"]);
    assert_eq!(places, Some([24, 4, 8]));
    assert_eq!(btf.members("task_struct", ["tgid", "mm"]), None);
    assert_eq!(btf.members("task", ["tgid"]), None);
    // A structure that contains itself.
    let btf = Btf::new(types(3)).unwrap();
    assert_eq!(btf.members("task_struct", ["comm"]), Some([8]));
}

#[test]
fn types_that_are_cut_or_changed_are_refused_or_read() {
    let whole = types(ANONYMOUS);
    for length in 0..whole.len() {
        assert!(Btf::new(whole[..length].to_vec()).is_none());
    }
    for at in 0..whole.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] = value;
            if let Some(btf) = Btf::new(bytes) {
                let _ = btf.members("task_struct", ["pgd", "tgid"]);
            }
        }
    }
}

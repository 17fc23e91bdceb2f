//! What of uniprof reads bytes of strangers, one function each: bytes go in, nothing comes out.
//!
//! A function here must end by itself, soon and with bounded memory, whatever the bytes are; what it
//! finds out about the result, it asserts. The same table serves the driver of this package, which
//! needs no more than a stable compiler, and the targets for cargo-fuzz in `fuzz/fuzz_targets/`.

#![forbid(unsafe_code)]

mod repair;
mod take;
mod seeds;
mod recordings;
mod traces;
mod images;
mod symbol_lists;
mod made_code;
mod conversations;
mod agents;
mod answers;
mod page_tables;
mod linux;
mod stacks;
mod markup;
mod names;
pub mod mutation;
pub mod crafted;

/// One kind of input.
pub struct Target {
    /// Its name, also that of the file in `fuzz/fuzz_targets/`.
    pub name: &'static str,
    /// What the bytes are, for people.
    pub what: &'static str,
    /// Takes the bytes.
    pub run: fn(&[u8]),
    /// Inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target {
        name: "reader",
        what: "a .uprof file as it is: damage, streaming, recovery",
        run: recordings::reader,
        seeds: seeds::files,
    },
    Target {
        name: "blocks",
        what: "a .uprof file whose checksums are made right: payloads of all kinds",
        run: recordings::blocks,
        seeds: seeds::unpacked_files,
    },
    Target {
        name: "metadata",
        what: "the payload of one block",
        run: recordings::payload,
        seeds: seeds::payloads,
    },
    Target {
        name: "embedded",
        what: "segments, lines and unwind rules embedded in a recording",
        run: recordings::embedded,
        seeds: seeds::embedded,
    },
    Target {
        name: "report",
        what: "a .uprof file with right checksums, through every view and export",
        run: recordings::report,
        seeds: seeds::unpacked_files,
    },
    Target {
        name: "elf",
        what: "an ELF image: headers, symbols, lines, unwind rules",
        run: images::elf,
        seeds: seeds::images,
    },
    Target {
        name: "dwarf",
        what: "sections of call frame and debug information",
        run: images::dwarf,
        seeds: seeds::sections,
    },
    Target {
        name: "instructions",
        what: "machine code of either processor",
        run: images::instructions,
        seeds: seeds::code,
    },
    Target {
        name: "symbol_lists",
        what: "nm, kallsyms, System.map, /proc/PID/maps, libxl's JSON, notes, mangled names, process contexts",
        run: symbol_lists::run,
        seeds: seeds::symbol_lists,
    },
    Target {
        name: "made_code",
        what: "perf maps and jitdumps",
        run: made_code::run,
        seeds: seeds::made_code,
    },
    Target {
        name: "imports",
        what: "texts of other tools",
        run: recordings::imports,
        seeds: seeds::imports,
    },
    Target {
        name: "pprof",
        what: "a pprof file: its tables, values and stacks",
        run: recordings::pprof,
        seeds: seeds::pprof,
    },
    Target {
        name: "answers",
        what: "what a server answers to a push",
        run: answers::run,
        seeds: answers::seeds,
    },
    Target {
        name: "trace_nanos",
        what: "what Nanos's function_graph tracer prints",
        run: traces::nanos,
        seeds: seeds::trace_nanos,
    },
    Target {
        name: "trace_linux",
        what: "what trace-cmd report and tracefs print of calls",
        run: traces::linux,
        seeds: seeds::trace_linux,
    },
    Target {
        name: "trace_functions",
        what: "what function tracers print",
        run: traces::functions,
        seeds: seeds::trace_functions,
    },
    Target {
        name: "trace_uftrace",
        what: "what uftrace dump prints",
        run: traces::uftrace,
        seeds: seeds::trace_uftrace,
    },
    Target {
        name: "trace_syscalls",
        what: "logs of system calls",
        run: traces::syscalls,
        seeds: seeds::trace_syscalls,
    },
    Target {
        name: "trace_chrome",
        what: "JSON traces",
        run: traces::chrome,
        seeds: seeds::trace_chrome,
    },
    Target {
        name: "trace_osv",
        what: "OSv's trace files",
        run: traces::osv,
        seeds: seeds::trace_osv,
    },
    Target {
        name: "gdb",
        what: "what a gdb stub answers, a payload a line",
        run: conversations::gdb,
        seeds: seeds::gdb,
    },
    Target {
        name: "gdb_bytes",
        what: "what a gdb stub sends, byte by byte",
        run: conversations::gdb_bytes,
        seeds: seeds::gdb_bytes,
    },
    Target {
        name: "qmp",
        what: "what a QEMU monitor answers",
        run: conversations::qmp,
        seeds: seeds::qmp,
    },
    Target {
        name: "xenstore",
        what: "what xenstored answers",
        run: conversations::xenstore,
        seeds: seeds::xenstore,
    },
    Target {
        name: "agent",
        what: "what an agent in a guest sends, as frames and byte by byte",
        run: agents::sent,
        seeds: agents::seeds,
    },
    Target {
        name: "agent_client",
        what: "what a client sends to an agent, as frames and byte by byte",
        run: agents::asked,
        seeds: agents::seeds,
    },
    Target {
        name: "page_tables",
        what: "a guest's memory and translation registers",
        run: page_tables::run,
        seeds: seeds::noise,
    },
    Target {
        name: "linux",
        what: "the memory of a Linux guest: kallsyms, ORC, and stacks walked by it",
        run: linux::run,
        seeds: linux::seeds,
    },
    Target {
        name: "stacks",
        what: "registers and stack bytes, unwound by rules, by frame pointers and by guessing",
        run: stacks::run,
        seeds: seeds::noise,
    },
    Target {
        name: "names",
        what: "names of functions, threads, images and guests, drawn and exported",
        run: names::run,
        seeds: seeds::names,
    },
];

/// Runs the target called `name`.
///
/// # Panics
/// If there is none, and if the target finds something.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    let target = target.unwrap_or_else(|| panic!("there is no target {name}"));
    (target.run)(bytes);
}

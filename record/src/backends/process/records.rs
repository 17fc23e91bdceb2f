//! Converts records of the kernel's ring buffer to slots and notes.
//!
//! Input: the bytes of a record. Output: nothing, or a filled slot or note. A record that is shorter than its contents
//! require is counted as lost. Source: perf_event_open(2), "MMAP layout".

use super::buffer_share::BufferShare;
use super::executing::Executing;
use super::members::Members;
use super::registers::WANTED;
use super::repeats::{Repeats, Reported};
use crate::source::ring::Sink;
use crate::source::slot::{NoteKind, Slot};
use crate::sys::clock::monotonic_ns;
use crate::sys::perf::TRAILER_BYTES;
use perf_event_open_sys::bindings as abi;
use uprof::cold::{LossReason, MappedFile};
use uprof::cpu::is_kernel_address;
use uprof::{Frame, Registers, State, Stop, Task};

/// The process id of a task outside of this container's process ids, and of the kernel's idle tasks. What the kernel
/// tells of its mappings is not of one process.
const ELSEWHERE: u32 = 0;

/// Reads the fields of a record one after the other.
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    /// The next four bytes.
    pub fn u32(&mut self) -> Option<u32> {
        self.bytes(4)?.try_into().ok().map(u32::from_ne_bytes)
    }

    /// The next eight bytes.
    pub fn u64(&mut self) -> Option<u64> {
        self.bytes(8)?.try_into().ok().map(u64::from_ne_bytes)
    }

    /// A text that ends with its first zero byte.
    fn text(&mut self) -> &'a [u8] {
        let end = self
            .0
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(self.0.len());
        &self.0[..end]
    }

    /// Process and thread, as a task.
    fn task(&mut self) -> Option<Task> {
        let (pid, tid) = (self.u32()?, self.u32()?);
        Some(Task {
            space: pid,
            vcpu: tid,
        })
    }
}

/// Reads the records of one session.
#[derive(Debug)]
pub struct RecordReader {
    /// The processes whose records are taken; grows as records report new ones.
    pub members: Members,
    /// Those of the members that are about to run another program.
    pub executing: Executing,
    /// The latest mappings of the members.
    pub repeats: Repeats,
    /// Whether samples hold user stack bytes.
    pub with_stack: bool,
    /// The kernel's limit on frames.
    pub most_frames: usize,
    /// Whether only the innermost frame of a sample is kept.
    pub ip_only: bool,
    /// Time before which samples are left out.
    pub since_ns: u64,
    /// When work on the current record began.
    pub began_ns: u64,
    /// Whether samples are left out that were taken while a thread was in its guest under KVM.
    pub leaves_out_guests: bool,
}

/// The user part of a sample.
enum User {
    /// It is valid. The value is whether there are frames.
    Frames(bool),
    /// It belongs to a program that is gone.
    Gone,
}

impl RecordReader {
    /// Handles one record: its type, its `misc` field and the bytes after the header, from a buffer with this share.
    pub fn record(
        &mut self,
        kind: u32,
        misc: u16,
        body: &[u8],
        share: &BufferShare,
        sink: &mut Sink,
    ) {
        let done = match kind {
            abi::PERF_RECORD_SAMPLE if is_of_guest(misc) && self.leaves_out_guests => Some(()),
            abi::PERF_RECORD_SAMPLE => self.sample(body, is_of_guest(misc), sink),
            abi::PERF_RECORD_MMAP2 => self.mapped(body, sink),
            abi::PERF_RECORD_COMM => self.named(body, misc, sink),
            abi::PERF_RECORD_FORK => self.forked(body, sink),
            abi::PERF_RECORD_EXIT => self.ended(body, sink),
            abi::PERF_RECORD_LOST => {
                self.members
                    .lost_records(share.passed_ns().max(self.since_ns));
                self.executing.child = None;
                lost(body, share, sink)
            }
            _ => Some(()),
        };
        if done.is_none() {
            sink.lose(LossReason::ReadFailed, 1, self.began_ns);
        }
    }

    fn sample(&mut self, body: &[u8], of_guest: bool, sink: &mut Sink) -> Option<()> {
        let (task, time_ns) = self.of_sample(body)?;
        if time_ns < self.since_ns || self.executing.child == Some(task.space) {
            return Some(());
        }
        let Some(mut slot) = sink.take(time_ns) else {
            return Some(());
        };
        let whole = self.read_sample(body, State::Running, &mut slot);
        if of_guest {
            be_of_guest(&mut slot);
        }
        sink.put(slot);
        whole
    }

    /// The task and time of a sample.
    pub fn of_sample(&self, body: &[u8]) -> Option<(Task, u64)> {
        let mut fields = Fields(body);
        fields.u64()?;
        Some((fields.task()?, fields.u64()?))
    }

    /// Fills `slot` with a sample of a thread in this state.
    pub fn read_sample(&mut self, body: &[u8], state: State, slot: &mut Slot) -> Option<()> {
        let mut fields = Fields(body);
        let ip = fields.u64()?;
        let task = fields.task()?;
        slot.reset(fields.u64()?, task, state);
        slot.details.cpu = Some(u64::from(fields.u32()?));
        fields.u32()?;
        let whole = self.fill(slot, ip, &mut fields);
        if slot.chain().is_empty() {
            slot.push_frame(Frame::exact(ip));
        }
        // The clock is read once per record: the end of this one is the beginning of the next.
        let now_ns = monotonic_ns();
        slot.details.cost_ns = Some(now_ns.saturating_sub(self.began_ns));
        self.began_ns = now_ns;
        whole
    }

    fn fill(&mut self, slot: &mut Slot, ip: u64, fields: &mut Fields<'_>) -> Option<()> {
        let User::Frames(has_user) = self.chain(slot, fields)? else {
            return Some(());
        };
        let registers_abi = fields.u64()?;
        if registers_abi != abi::PERF_SAMPLE_REGS_ABI_NONE as u64 {
            for &(_, dwarf) in WANTED {
                slot.registers.set(dwarf, fields.u64()?);
            }
            if !has_user {
                user_ip(slot);
            }
            // 32-bit code: the kernel has followed its frame pointers, and nothing here can unwind its stack.
            if registers_abi == abi::PERF_SAMPLE_REGS_ABI_32 as u64 {
                slot.registers = Registers::default();
            }
        } else if slot.chain().is_empty() {
            slot.push_frame(Frame::exact(ip));
        }
        if self.with_stack {
            let room = usize::try_from(fields.u64()?).ok()?;
            let stack = fields.bytes(room)?;
            let filled = if room > 0 { fields.u64()? } else { 0 };
            let filled = usize::try_from(filled).ok()?.min(room);
            let sp = super::registers::ARCH.special_registers().sp;
            if let Some(sp) = slot.registers.get(sp) {
                slot.set_stack(sp, &stack[..filled]);
                slot.keep_stack = filled > 0;
            }
        }
        Some(())
    }

    /// The kernel's chain: contexts, each followed by an exact address and return addresses. If the frame pointer holds
    /// data, the kernel takes any word for a return address, such as the stack's canary.
    fn chain(&mut self, slot: &mut Slot, fields: &mut Fields<'_>) -> Option<User> {
        let count = fields.u64()?;
        let (mut first, mut has_user, mut is_cut) = (true, false, false);
        for _ in 0..count {
            let address = fields.u64()?;
            if address >= abi::PERF_CONTEXT_MAX {
                first = true;
                has_user |= address == abi::PERF_CONTEXT_USER;
                continue;
            }
            let (pid, has_frames) = (slot.task.space, !slot.chain().is_empty());
            if first && has_user && self.executing.is_gone(pid, address, has_frames) {
                return Some(User::Gone);
            }
            let frame = if first {
                Frame::exact(address)
            } else {
                is_cut |= has_user && !is_user_code(address);
                Frame::return_address(address)
            };
            first = false;
            if !(is_cut || self.ip_only && has_frames) {
                slot.push_frame(frame);
            }
        }
        slot.stop = if self.ip_only {
            Stop::NotWalked
        } else if is_cut {
            Stop::BadPointer
        } else if slot.chain().len() >= self.most_frames {
            Stop::Depth
        } else {
            Stop::Unsaid
        };
        Some(User::Frames(has_user))
    }

    fn mapped(&mut self, body: &[u8], sink: &mut Sink) -> Option<()> {
        let (_, time_ns) = trailer(body)?;
        let mut fields = Fields(body);
        let task = fields.task()?;
        if task.space == ELSEWHERE || !self.members.wants(task.space) {
            return Some(());
        }
        let (start, length, file_offset) = (fields.u64()?, fields.u64()?, fields.u64()?);
        self.executing.mapped(task.space, start, length);
        let file = file(fields.bytes(24)?)?;
        // Protection and flags.
        fields.bytes(8)?;
        let path = fields.text();
        let mapping = Reported {
            space: task.space,
            start,
            length,
            file_offset,
            file,
        };
        if self.repeats.is_there(mapping, path) {
            return Some(());
        }
        let kind = NoteKind::Mapped {
            start,
            length,
            file_offset,
            file,
        };
        if !self.note(time_ns, task, kind, path, sink) {
            self.repeats.forget(task.space);
        }
        Some(())
    }

    fn named(&mut self, body: &[u8], misc: u16, sink: &mut Sink) -> Option<()> {
        let (_, time_ns) = trailer(body)?;
        let mut fields = Fields(body);
        let task = fields.task()?;
        let executes = u32::from(misc) & abi::PERF_RECORD_MISC_COMM_EXEC != 0;
        if task.space == ELSEWHERE {
            return Some(());
        }
        if !self.members.wants(task.space) {
            if task.space != task.vcpu || !self.members.are_called(fields.text()) {
                return Some(());
            }
            if !executes {
                // Its earlier mappings must be read from /proc.
                self.members.be_unsure();
                return Some(());
            }
            self.members.add(task.space);
        }
        if executes {
            self.executing.began(task.space);
            self.repeats.forget(task.space);
            self.note(time_ns, task, NoteKind::Cleared, &[], sink);
        }
        self.note(time_ns, task, NoteKind::Named, fields.text(), sink);
        Some(())
    }

    /// Sends a note; returns whether there was room. If not, what it tells has to be read from /proc.
    fn note(&self, time_ns: u64, task: Task, kind: NoteKind, text: &[u8], sink: &mut Sink) -> bool {
        let is_sent = sink.note(time_ns, task, kind, text);
        if !is_sent {
            self.members.lost_records(time_ns);
        }
        is_sent
    }

    /// Handles a new thread or process. It has its starter's name until a name record changes that.
    fn forked(&mut self, body: &[u8], sink: &mut Sink) -> Option<()> {
        let mut fields = Fields(body);
        let (space, parent) = (fields.u32()?, fields.u32()?);
        let (vcpu, starter) = (fields.u32()?, fields.u32()?);
        let time_ns = fields.u64()?;
        let task = Task { space, vcpu };
        if space != parent && space != ELSEWHERE {
            if !self.members.wants(parent) {
                // Its id may be that of a member that ended.
                if time_ns >= self.since_ns {
                    self.members.remove(space);
                }
                return Some(());
            }
            self.members.add(space);
            self.repeats.forget(space);
            if parent != ELSEWHERE {
                self.note(time_ns, task, NoteKind::CopiedFrom(parent), &[], sink);
            }
        }
        // The first thread's name is its process's, which threads and copies have unless they have another one.
        let is_inside = space != ELSEWHERE && parent != ELSEWHERE;
        if starter != parent && is_inside && self.members.wants(space) {
            let starter = Task {
                space: parent,
                vcpu: starter,
            };
            self.note(time_ns, task, NoteKind::StartedBy(starter), &[], sink);
        }
        Some(())
    }

    fn ended(&self, body: &[u8], sink: &mut Sink) -> Option<()> {
        let mut fields = Fields(body);
        let (space, _, vcpu, _) = (fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?);
        let time_ns = fields.u64()?;
        if space != ELSEWHERE && self.members.wants(space) {
            sink.note(time_ns, Task { space, vcpu }, NoteKind::Ended, &[]);
        }
        Some(())
    }
}

/// Whether the processor was in a guest.
fn is_of_guest(misc: u16) -> bool {
    let mode = u32::from(misc) & abi::PERF_RECORD_MISC_CPUMODE_MASK;
    mode == abi::PERF_RECORD_MISC_GUEST_KERNEL || mode == abi::PERF_RECORD_MISC_GUEST_USER
}

/// Makes the address of a sample that was taken in a guest, which is all that the kernel reports of it, the guest's. Of
/// the monitor's own stack, the registers know where it went to the kernel.
fn be_of_guest(slot: &mut Slot) {
    slot.details.guest_ip = slot.chain().first().map(|frame| frame.address);
    slot.keep_frames(0);
    user_ip(slot);
}

/// Sets the innermost user frame from the registers, if the kernel's frames left no room for the user's.
fn user_ip(slot: &mut Slot) {
    let ip = super::registers::ARCH.special_registers().ip;
    if let Some(ip) = slot.registers.get(ip) {
        slot.push_frame(Frame::exact(ip));
        if slot.stop == Stop::Unsaid {
            slot.stop = Stop::NotWalked;
        }
    }
}

/// The task and time at the end of every record but a sample.
pub fn trailer(body: &[u8]) -> Option<(Task, u64)> {
    let mut fields = Fields(body.get(body.len().checked_sub(TRAILER_BYTES)?..)?);
    Some((fields.task()?, fields.u64()?))
}

/// The mapped file: device, inode and generation. The flag for a build-id instead of these is ignored: we request none,
/// but the kernel sets the flag when another program does.
fn file(bytes: &[u8]) -> Option<Option<MappedFile>> {
    let mut fields = Fields(bytes);
    let file = MappedFile {
        device_major: fields.u32()?,
        device_minor: fields.u32()?,
        inode: fields.u64()?,
        contents: None,
    };
    Some((file.inode != 0).then_some(file))
}

fn lost(body: &[u8], share: &BufferShare, sink: &mut Sink) -> Option<()> {
    let (_, time_ns) = trailer(body)?;
    let mut fields = Fields(body);
    fields.u64()?;
    let ours = share.of(fields.u64()?);
    if ours > 0 {
        sink.lose(LossReason::KernelBuffer, ours, time_ns);
    }
    Some(())
}

/// Whether a process may have code at `address`.
fn is_user_code(address: u64) -> bool {
    !is_kernel_address(address) && super::registers::ARCH.can_be_code(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::ring::ring_of;
    use crate::sys::ring_buffer::Next;

    const KERNEL: u64 = 0xffff_ffff_8100_0000;

    /// A reader of records of all processes.
    fn reader() -> RecordReader {
        RecordReader {
            members: Members::new(true),
            executing: Executing::default(),
            repeats: Default::default(),
            with_stack: false,
            most_frames: 127,
            ip_only: false,
            since_ns: 0,
            began_ns: 0,
            leaves_out_guests: false,
        }
    }

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// The slot of a sample with this chain, as the kernel writes it: addresses after the contexts that they are in.
    fn recorded(chain: &[u64], check: impl FnOnce(&Slot)) {
        let mut body = words(&[0x1, 0x0000_0007_0000_0005, 99, 3, chain.len() as u64]);
        body.extend(words(chain));
        body.extend(words(&[0]));
        let (mut sink, mut drain) = ring_of(2, 0);
        let mut reader = reader();
        let share = BufferShare::default();
        reader.record(abi::PERF_RECORD_SAMPLE, 0, &body, &share, &mut sink);
        drain.sample(|slot| check(slot));
    }

    /// The slot of a chain in user code.
    fn user_chain(addresses: &[u64], check: impl FnOnce(&Slot)) {
        recorded(&[&[abi::PERF_CONTEXT_USER], addresses].concat(), check);
    }

    #[test]
    fn no_kernel_calls_user_code_and_a_chain_ends_at_what_is_no_address() {
        for word in [
            KERNEL,
            0xff01_f7f0_f00c_f0ef,
            0x7f01_f7f0_f00c_f0ef,
            u64::MAX - 4096,
        ] {
            user_chain(&[0x40, 0x50, word, 0x60], |slot| {
                assert_eq!(
                    slot.chain(),
                    [Frame::exact(0x40), Frame::return_address(0x50)]
                );
                assert_eq!(slot.stop, Stop::BadPointer, "{word:#x}");
            });
        }
        user_chain(&[0x40, 0x50, 0x60], |slot| {
            assert_eq!(slot.stop, Stop::Unsaid)
        });
    }

    /// The kernel reports the guest's instruction, and no frames.
    #[test]
    fn a_sample_in_a_guest_has_the_stack_of_its_monitor() {
        let guest_ip = 0x10_20d5;
        let contexts = [abi::PERF_CONTEXT_KERNEL, abi::PERF_CONTEXT_USER];
        let mut body = words(&[guest_ip, 0x0000_0007_0000_0005, 99, 3, 2]);
        body.extend(words(&contexts));
        body.extend(words(&[abi::PERF_SAMPLE_REGS_ABI_64 as u64]));
        body.extend(words(&[0x7f00_0000_1234; WANTED.len()]));
        for (mode, leaves_out_guests) in [
            (abi::PERF_RECORD_MISC_GUEST_KERNEL, false),
            (abi::PERF_RECORD_MISC_GUEST_USER, false),
            (abi::PERF_RECORD_MISC_GUEST_USER, true),
        ] {
            let (mut sink, mut drain) = ring_of(2, 0);
            let mut reader = RecordReader {
                leaves_out_guests,
                ..reader()
            };
            let share = BufferShare::default();
            reader.record(
                abi::PERF_RECORD_SAMPLE,
                mode as u16,
                &body,
                &share,
                &mut sink,
            );
            let found = drain.sample(|slot| (slot.details.guest_ip, slot.chain().to_vec()));
            let expected = (Some(guest_ip), vec![Frame::exact(0x7f00_0000_1234)]);
            assert_eq!(found, (!leaves_out_guests).then_some(expected));
        }
    }

    #[test]
    fn a_chain_has_an_exact_address_after_each_context() {
        let chain = [
            abi::PERF_CONTEXT_KERNEL,
            KERNEL,
            KERNEL + 16,
            abi::PERF_CONTEXT_USER,
            0x40,
            0x50,
        ];
        let expected = [
            Frame::exact(KERNEL),
            Frame::return_address(KERNEL + 16),
            Frame::exact(0x40),
            Frame::return_address(0x50),
        ];
        recorded(&chain, |slot| {
            assert_eq!(slot.chain(), expected);
            assert_eq!(slot.task, Task { space: 5, vcpu: 7 });
            assert_eq!(slot.time_ns, 99);
            assert_eq!(slot.details.cpu, Some(3));
        });
    }

    /// The kernel gives each of them the number 0, which is also that of its own mappings.
    #[test]
    fn processes_outside_of_this_container_have_no_mappings() {
        let (mut sink, mut drain) = ring_of(8, 0);
        let mut reader = reader();
        let share = BufferShare::default();
        let mut record = |kind, misc, body: &[u64], text: &[u8; 8]| {
            let body = [words(body), text.to_vec(), words(&[0, 99, 3])].concat();
            reader.record(kind, misc, &body, &share, &mut sink);
        };
        let file = [0, 0x1000, 0x2000, 0x3000, 8, 0x22, 0x33, 0];
        record(abi::PERF_RECORD_MMAP2, 0, &file, b"/bin/a\0\0");
        let exec = abi::PERF_RECORD_MISC_COMM_EXEC as u16;
        record(abi::PERF_RECORD_COMM, exec, &[0], b"name\0\0\0\0");
        for kind in [abi::PERF_RECORD_EXIT, abi::PERF_RECORD_FORK] {
            record(kind, 0, &[7 << 32, 0, 99], &[0; 8]);
        }
        // One from outside starts one inside, which is seen, and has no mapping yet.
        record(abi::PERF_RECORD_FORK, 0, &[5, 5, 99], &[0; 8]);
        assert_eq!(drain.note(|note| note.kind), None);
        record(abi::PERF_RECORD_EXIT, 0, &[5, 5, 99], &[0; 8]);
        assert_eq!(drain.note(|note| note.kind), Some(NoteKind::Ended));
    }

    #[test]
    fn a_mapping_has_an_inode_though_marked_as_having_a_build_id() {
        let mut body = words(&[0x0000_0007_0000_0005, 0x1000, 0x2000, 0x3000]);
        body.extend(words(&[0x0000_0011_0000_0008, 0x22, 0x33, 0]));
        body.extend(b"/bin/a\0\0");
        body.extend(words(&[0x0000_0007_0000_0005, 99, 3]));
        let (mut sink, mut drain) = ring_of(2, 0);
        let mut reader = reader();
        let share = BufferShare::default();
        reader.record(abi::PERF_RECORD_MMAP2, 0, &body, &share, &mut sink);
        let with_id = abi::PERF_RECORD_MISC_MMAP_BUILD_ID as u16;
        body[16] += 1; // further up
        reader.record(abi::PERF_RECORD_MMAP2, with_id, &body, &share, &mut sink);
        // Again, as if its protection had changed and changed back.
        reader.record(abi::PERF_RECORD_MMAP2, with_id, &body, &share, &mut sink);
        let mut told = || drain.note(|note| (note.kind, note.text())).unwrap();
        let file = MappedFile {
            device_major: 8,
            device_minor: 0x11,
            inode: 0x22,
            contents: None,
        };
        for _ in 0..2 {
            let (NoteKind::Mapped { file: found, .. }, path) = told() else {
                panic!("no mapping")
            };
            assert_eq!((found, &path[..]), (Some(file), "/bin/a"));
        }
        assert!(drain.note(|_| ()).is_none());
    }

    #[test]
    fn what_a_loss_or_a_full_ring_leaves_out_is_read_again() {
        let mut reader = reader();
        reader.since_ns = 5;
        let share = BufferShare::default();
        let loss = words(&[0, 1, 0x0000_0007_0000_0005, 99, 3]);
        let (mut sink, _drain) = ring_of(2, 0);
        let passed = |kind, time_ns| Next {
            kind,
            pid: 5,
            time_ns,
        };
        let mut lose = |reader: &mut RecordReader, share: &BufferShare| {
            share.pass(&passed(abi::PERF_RECORD_LOST, 99));
            reader.record(abi::PERF_RECORD_LOST, 0, &loss, share, &mut sink);
            reader.members.take_lost_since()
        };
        assert_eq!(lose(&mut reader, &share), Some(5));
        share.pass(&passed(abi::PERF_RECORD_SAMPLE, 70));
        assert_eq!(lose(&mut reader, &share), Some(70));
        let mut named = words(&[0x0000_0007_0000_0005]);
        named.extend(b"name\0\0\0\0");
        named.extend(words(&[0x0000_0007_0000_0005, 80, 3]));
        let mut lost = None;
        while lost.is_none() {
            reader.record(abi::PERF_RECORD_COMM, 0, &named, &share, &mut sink);
            lost = reader.members.take_lost_since();
        }
        assert_eq!(lost, Some(80), "no room for the note");
    }

    #[test]
    fn a_record_cut_anywhere_is_counted_not_trusted() {
        let mut body = words(&[0x1, 5, 99, 3, 2, abi::PERF_CONTEXT_USER, 0x40]);
        body.extend(words(&[abi::PERF_SAMPLE_REGS_ABI_64 as u64]));
        body.extend(words(&[7; WANTED.len()]));
        body.extend(words(&[16, 1, 2, 16]));
        for length in 0..body.len() {
            let (mut sink, _drain) = ring_of(2, 64);
            let mut reader = RecordReader {
                with_stack: true,
                ..reader()
            };
            for kind in 0..24 {
                reader.record(kind, 0, &body[..length], &BufferShare::default(), &mut sink);
            }
            assert!(sink.slots() > 0);
        }
    }
}

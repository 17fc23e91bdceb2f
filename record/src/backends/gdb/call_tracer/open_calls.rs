//! The calls that are open. Entries and returns go in, and calls come out in the order of their ends.
//!
//! A call is identified by its return address and by the stack pointer after the return. That distinguishes recursion
//! and other threads of the guest at the same address. Calls nest by their stacks: a guest that switches threads on a
//! vCPU inside a traced function has open calls of several stacks there, and each stack is a task of its own.

use uprof::{Span, SpanKind};

/// Most calls that are open on a stack; deeper ones are left out.
pub const MOST_DEPTH: usize = uprof::layout::MAX_FRAMES;
/// Most stacks with open calls.
pub const MOST_STACKS: usize = 256;
/// Stack pointers that are further apart than this belong to different stacks.
const STACK_BYTES: u64 = 256 << 10;

/// A call of a traced function.
pub type Call = Span<usize, usize>;

/// A call that begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The function's index.
    pub function: usize,
    /// The vCPU or thread.
    pub vcpu: u32,
    /// Its return address.
    pub return_to: u64,
    /// The stack pointer after its return.
    pub stack_pointer: u64,
    /// Time of the entry.
    pub time_ns: u64,
}

#[derive(Debug)]
struct Stack {
    vcpu: u32,
    calls: Vec<Entry>,
}

/// The open calls on each stack.
#[derive(Debug, Default)]
pub struct OpenCalls {
    stacks: Vec<Stack>,
}

impl OpenCalls {
    /// Begins a call. Returns whether it is followed: there may be too many.
    pub fn enter(&mut self, entry: Entry, ended: &mut Vec<Call>) -> bool {
        self.drop_stale(entry, ended);
        let place = self.stack_for(entry);
        match place {
            Some(place) if self.stacks[place].calls.len() < MOST_DEPTH => {
                self.stacks[place].calls.push(entry);
                true
            }
            _ => false,
        }
    }

    /// Ends a call, as a vCPU is at an address that calls return to. Calls inside the one that returned may be on
    /// another stack, if the guest switched threads, and stay open.
    pub fn leave(
        &mut self,
        vcpu: u32,
        at: u64,
        stack_pointer: u64,
        time_ns: u64,
        ended: &mut Vec<Call>,
    ) {
        let is_it = |call: &Entry| (call.return_to, call.stack_pointer) == (at, stack_pointer);
        let of = |stack: &Stack| stack.calls.iter().rposition(is_it);
        let mut all = self.stacks.iter().enumerate();
        // A thread of the guest may end its call on another vCPU.
        let own = all
            .clone()
            .filter(|(_, stack)| stack.vcpu == vcpu)
            .find_map(|(place, stack)| Some((place, of(stack)?)));
        let Some((place, depth)) =
            own.or_else(|| all.find_map(|(place, stack)| Some((place, of(stack)?))))
        else {
            return;
        };
        self.move_inner(place, depth + 1, ended);
        let Some(entry) = self.stacks[place].calls.pop() else {
            return;
        };
        ended.push(Call {
            length_ns: Some(time_ns.saturating_sub(entry.time_ns)),
            complete: true,
            ..self.call(place, depth, entry)
        });
    }

    /// Moves the calls from `depth` on to a stack of their own, or cuts them if no stack is free.
    fn move_inner(&mut self, place: usize, depth: usize, ended: &mut Vec<Call>) {
        let stack = &mut self.stacks[place];
        if stack.calls.len() == depth {
            return;
        }
        let vcpu = stack.vcpu;
        match self.unused(vcpu) {
            Some(other) => {
                let inner = self.stacks[place].calls.split_off(depth);
                self.stacks[other].calls = inner;
            }
            None => self.cut(place, depth, ended),
        }
    }

    /// How many open calls return to `address`.
    pub fn returning_to(&self, address: u64) -> usize {
        let all = self.stacks.iter().flat_map(|stack| &stack.calls);
        all.filter(|call| call.return_to == address).count()
    }

    /// Ends the trace: open calls are reported without an end.
    pub fn finish(&mut self, ended: &mut Vec<Call>) {
        for place in 0..self.stacks.len() {
            self.cut(place, 0, ended);
        }
    }

    /// The vCPU of a stack, and how many stacks with open calls it had before this one.
    pub fn owner(&self, task: usize) -> (u32, usize) {
        let vcpu = self.stacks[task].vcpu;
        let before = self.stacks[..task].iter();
        (vcpu, before.filter(|stack| stack.vcpu == vcpu).count())
    }

    /// Most stacks that there were at one time.
    pub fn stacks(&self) -> usize {
        self.stacks.len()
    }

    /// Cuts a call whose stack slot is used again: it was left without a return.
    fn drop_stale(&mut self, entry: Entry, ended: &mut Vec<Call>) {
        for place in 0..self.stacks.len() {
            let same = |call: &Entry| call.stack_pointer == entry.stack_pointer;
            let stack = &self.stacks[place];
            if stack.vcpu == entry.vcpu
                && let Some(depth) = stack.calls.iter().position(same)
            {
                self.cut(place, depth, ended);
            }
        }
    }

    /// The stack of a call: that of the open call nearest above it, otherwise an unused one, otherwise a new one.
    fn stack_for(&mut self, entry: Entry) -> Option<usize> {
        let below = |stack: &Stack| {
            let top = stack.calls.last()?.stack_pointer;
            let bytes = top.checked_sub(entry.stack_pointer)?;
            (bytes < STACK_BYTES).then_some(bytes)
        };
        let own = self.stacks.iter().enumerate();
        let own = own.filter(|(_, stack)| stack.vcpu == entry.vcpu);
        let nearest = own.filter_map(|(place, stack)| Some((below(stack)?, place)));
        match nearest.min() {
            Some((_, place)) => Some(place),
            None => self.unused(entry.vcpu),
        }
    }

    /// A stack of the vCPU without open calls, which may be new.
    fn unused(&mut self, vcpu: u32) -> Option<usize> {
        let mut all = self.stacks.iter();
        let found = all.position(|stack| stack.vcpu == vcpu && stack.calls.is_empty());
        if found.is_none() && self.stacks.len() < MOST_STACKS {
            self.stacks.push(Stack {
                vcpu,
                calls: Vec::new(),
            });
            return Some(self.stacks.len() - 1);
        }
        found
    }

    fn cut(&mut self, place: usize, depth: usize, ended: &mut Vec<Call>) {
        while self.stacks[place].calls.len() > depth
            && let Some(entry) = self.stacks[place].calls.pop()
        {
            let call = self.call(place, self.stacks[place].calls.len(), entry);
            ended.push(call);
        }
    }

    fn call(&self, place: usize, depth: usize, entry: Entry) -> Call {
        Call {
            name: entry.function,
            task: place,
            cpu: None,
            start_ns: Some(entry.time_ns),
            length_ns: None,
            depth: depth as u16,
            complete: false,
            kind: SpanKind::Function,
            result: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(function: usize, vcpu: u32, return_to: u64, sp: u64, time_ns: u64) -> Entry {
        Entry {
            function,
            vcpu,
            return_to,
            stack_pointer: sp,
            time_ns,
        }
    }

    fn lines(ended: &[Call]) -> Vec<String> {
        let lines = ended.iter().map(|call| {
            let length = call.length_ns.map_or("?".into(), |ns| ns.to_string());
            let Call {
                name, task, depth, ..
            } = call;
            format!("{task}/{depth} {name} {length}")
        });
        lines.collect()
    }

    #[test]
    fn recursion_is_told_by_the_stack_pointer() {
        let (mut calls, mut ended) = (OpenCalls::default(), Vec::new());
        for depth in 0..3 {
            assert!(calls.enter(entry(7, 0, 0x100, 0x8000 - 32 * depth, depth), &mut ended));
        }
        assert_eq!(calls.returning_to(0x100), 3);
        // A thread without traced calls passes this address.
        calls.leave(0, 0x100, 0x7000, 3, &mut ended);
        calls.leave(1, 0x100, 0x9000, 3, &mut ended);
        assert!(ended.is_empty());
        for depth in (0..3).rev() {
            calls.leave(0, 0x100, 0x8000 - 32 * depth, 10, &mut ended);
        }
        assert_eq!(lines(&ended), ["0/2 7 8", "0/1 7 9", "0/0 7 10"]);
        assert_eq!(calls.returning_to(0x100), 0);
    }

    #[test]
    fn calls_that_are_left_without_a_return_are_cut() {
        let (mut calls, mut ended) = (OpenCalls::default(), Vec::new());
        calls.enter(entry(1, 0, 0x100, 0x8000, 0), &mut ended);
        calls.enter(entry(2, 0, 0x200, 0x7f00, 1), &mut ended);
        calls.leave(0, 0x100, 0x8000, 5, &mut ended);
        calls.enter(entry(1, 0, 0x100, 0x8000, 6), &mut ended);
        // The same stack slot, again.
        calls.enter(entry(1, 0, 0x100, 0x8000, 7), &mut ended);
        calls.enter(entry(2, 0, 0x200, 0x7f00, 8), &mut ended);
        calls.finish(&mut ended);
        let expected = ["0/0 1 5", "0/0 1 ?", "1/0 2 ?", "0/1 2 ?", "0/0 1 ?"];
        assert_eq!(lines(&ended), expected);
        assert!(
            ended
                .iter()
                .all(|call| call.complete == call.length_ns.is_some())
        );
    }

    #[test]
    fn stacks_that_lie_close_together_lose_no_call() {
        let (mut calls, mut ended) = (OpenCalls::default(), Vec::new());
        // The second thread's stack is just below the first one's, so that its call seems to be inside.
        calls.enter(entry(1, 0, 0x100, 0x1_0000, 0), &mut ended);
        calls.enter(entry(1, 0, 0x100, 0xc000, 10), &mut ended);
        calls.leave(0, 0x100, 0x1_0000, 20, &mut ended);
        calls.enter(entry(2, 0, 0x200, 0xbf00, 21), &mut ended);
        calls.leave(0, 0x200, 0xbf00, 25, &mut ended);
        calls.leave(0, 0x100, 0xc000, 30, &mut ended);
        assert_eq!(lines(&ended), ["0/0 1 20", "1/1 2 4", "1/0 1 20"]);
    }

    #[test]
    fn each_stack_nests_alone_and_may_end_on_another_vcpu() {
        let (mut calls, mut ended) = (OpenCalls::default(), Vec::new());
        // Two threads of the guest alternate inside the same function, on vCPU 0 and then 1.
        calls.enter(entry(1, 0, 0x100, 0x10_0000, 0), &mut ended);
        calls.enter(entry(1, 0, 0x100, 0x90_0000, 10), &mut ended);
        calls.enter(entry(2, 0, 0x200, 0x90_0000 - 64, 11), &mut ended);
        calls.leave(1, 0x100, 0x10_0000, 20, &mut ended);
        calls.leave(0, 0x200, 0x90_0000 - 64, 21, &mut ended);
        calls.leave(0, 0x100, 0x90_0000, 30, &mut ended);
        assert_eq!(lines(&ended), ["0/0 1 20", "1/1 2 10", "1/0 1 20"]);
        assert_eq!((calls.owner(0), calls.owner(1)), ((0, 0), (0, 1)));
        // A stack without open calls is used again; another vCPU has its own.
        calls.enter(entry(1, 0, 0x100, 0x50_0000, 40), &mut ended);
        calls.enter(entry(1, 3, 0x100, 0x50_0000 - 64, 40), &mut ended);
        assert_eq!(calls.stacks(), 3);
        assert_eq!(calls.owner(2), (3, 0));
    }

    #[test]
    fn what_is_too_deep_or_on_too_many_stacks_is_not_followed() {
        let (mut calls, mut ended) = (OpenCalls::default(), Vec::new());
        for depth in 0..MOST_DEPTH as u64 {
            assert!(calls.enter(entry(0, 0, 0x100, 0x80_0000 - 64 * depth, 0), &mut ended));
        }
        let beyond = 0x80_0000 - 64 * MOST_DEPTH as u64;
        assert!(!calls.enter(entry(0, 0, 0x100, beyond, 0), &mut ended));
        for stack in 1..MOST_STACKS as u64 {
            let sp = 0x8000_0000 + stack * STACK_BYTES * 2;
            assert!(calls.enter(entry(0, 0, 0x100, sp, 0), &mut ended));
        }
        assert!(!calls.enter(entry(0, 0, 0x100, 0x10_0000_0000, 0), &mut ended));
        calls.finish(&mut ended);
        assert_eq!(ended.len(), MOST_DEPTH + MOST_STACKS - 1);
        assert!(
            ended
                .iter()
                .all(|call| usize::from(call.depth) < MOST_DEPTH)
        );
    }
}

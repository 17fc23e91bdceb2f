//! Accounts for a recording as it comes: every block, every sample, every deadline.
//!
//! Enters: a stream of blocks. Leaves: a line for each minute of the recording, and totals. Memory
//! does not grow with the recording.

use crate::guest::Guest;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use uprof::cold::End;
use uprof::{Block, Item, Payload, Row, SampleBlock, StreamReader, Task};

const MINUTE_NS: u64 = 60_000_000_000;

/// What was found in a minute.
#[derive(Debug, Clone, Default)]
struct Minute {
    samples: u64,
    rounds: u64,
    missed: u64,
    bytes: u64,
    late_ns: u64,
    longest_late_ns: u64,
    cost_ns: u64,
}

impl Minute {
    fn write(&self, number: u64, out: &mut dyn Write) -> io::Result<()> {
        let rounds = self.rounds.max(1);
        writeln!(
            out,
            "minute number={number} samples={} rounds={} missed={} bytes={} late_ns={} \
             longest_late_ns={} cost_ns={}",
            self.samples,
            self.rounds,
            self.missed,
            self.bytes,
            self.late_ns / rounds,
            self.longest_late_ns,
            self.cost_ns / rounds,
        )?;
        out.flush()
    }
}

/// The round that the last row belongs to: all vCPUs of one freeze have one time.
#[derive(Debug, Clone, Copy)]
struct Round {
    time_ns: u64,
    deadline_ns: u64,
    last_vcpu: u32,
}

/// What is known of a recording so far.
pub struct Ledger {
    /// What the samples must be, where they are simulated.
    guest: Option<Guest>,
    period_ns: f64,
    first: Option<Round>,
    round: Option<Round>,
    /// The last round of the minute before.
    before_minute: Option<Round>,
    minute: Minute,
    minute_number: u64,
    start_ns: u64,
    blocks: u64,
    samples: u64,
    rounds: u64,
    missed: u64,
    bytes: u64,
    tasks: BTreeMap<Task, u64>,
    lost: BTreeMap<&'static str, u64>,
    end: Option<End>,
    wrong: u64,
    /// The first things that are wrong, in words.
    complaints: Vec<String>,
}

/// Most complaints that are printed.
const MOST_COMPLAINTS: usize = 20;

impl Ledger {
    /// A ledger without entries; `guest` says what the samples must be.
    pub fn new(guest: Option<Guest>) -> Self {
        Ledger {
            guest,
            period_ns: 0.0,
            first: None,
            round: None,
            before_minute: None,
            minute: Minute::default(),
            minute_number: 0,
            start_ns: 0,
            blocks: 0,
            samples: 0,
            rounds: 0,
            missed: 0,
            bytes: 0,
            tasks: BTreeMap::new(),
            lost: BTreeMap::new(),
            end: None,
            wrong: 0,
            complaints: Vec::new(),
        }
    }

    /// Reads a whole recording; each minute's line is written as soon as it is over.
    ///
    /// # Errors
    /// That there is no recording, or what the input or `out` return.
    pub fn read(&mut self, input: impl Read, out: &mut dyn Write) -> io::Result<()> {
        let mut reader = StreamReader::open(input).map_err(io::Error::other)?;
        while let Some(item) = reader.next_item()? {
            match item {
                Item::Block(block) => self.block(&block, out)?,
                Item::Damage(damage) => self.complain(damage.to_string()),
            }
        }
        self.minute.write(self.minute_number, out)
    }

    fn complain(&mut self, what: String) {
        self.wrong += 1;
        if self.complaints.len() < MOST_COMPLAINTS {
            self.complaints.push(what);
        }
    }

    fn block(&mut self, block: &Block<'_>, out: &mut dyn Write) -> io::Result<()> {
        // The reader has checked both checksums; what a long recording adds is counted here.
        if u64::from(block.sequence) != self.blocks || block.samples_before != self.samples {
            let (number, before) = (self.blocks, self.samples);
            self.complain(format!(
                "block {number}, after {before} samples, says it is {} after {}",
                block.sequence, block.samples_before
            ));
        }
        self.blocks += 1;
        self.bytes += block.file_bytes();
        self.minute.bytes += block.file_bytes();
        match block.payload() {
            Ok(Payload::Samples(samples)) => return self.samples(block, &samples, out),
            Ok(Payload::Metadata(metadata)) => {
                self.start_ns = block.first_ns;
                self.period_ns = 1e12 / metadata.sampling.rate_millihertz as f64;
            }
            Ok(Payload::Losses(losses)) => {
                for loss in losses {
                    *self.lost.entry(loss.reason.name()).or_default() += loss.count;
                }
            }
            Ok(Payload::End(end)) => self.end = Some(end),
            Ok(_) => {}
            Err(error) => self.complain(error.to_string()),
        }
        Ok(())
    }

    fn samples(
        &mut self,
        block: &Block<'_>,
        samples: &SampleBlock,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let mut by_task = vec![0u64; samples.tasks().len()];
        let mut chains = vec![None; samples.nodes().len() + 1];
        let mut rows = samples.rows();
        let (mut count, mut first_ns, mut last_ns) = (0u32, u64::MAX, 0);
        loop {
            let row = match rows.next_row() {
                Ok(Some(row)) => row,
                Ok(None) => break,
                Err(error) => {
                    self.complain(format!("block {}: {error}", block.sequence));
                    break;
                }
            };
            count += 1;
            first_ns = first_ns.min(row.time_ns);
            last_ns = last_ns.max(row.time_ns);
            by_task[row.task_index as usize] += 1;
            self.row(&row, out)?;
            self.compare(samples, &row, &mut chains);
        }
        if (count, first_ns, last_ns) != (block.samples, block.first_ns, block.last_ns) {
            self.complain(format!(
                "block {} has {count} samples from {first_ns} to {last_ns} ns, its header says {} \
                 from {} to {} ns",
                block.sequence, block.samples, block.first_ns, block.last_ns
            ));
        }
        for (task, count) in samples.tasks().iter().zip(by_task) {
            *self.tasks.entry(*task).or_default() += count;
        }
        Ok(())
    }

    fn row(&mut self, row: &Row<'_>, out: &mut dyn Write) -> io::Result<()> {
        self.samples += 1;
        if let Some(round) = &mut self.round
            && round.time_ns == row.time_ns
        {
            let ordered = round.last_vcpu < row.task.vcpu;
            round.last_vcpu = row.task.vcpu;
            self.minute.samples += 1;
            if !ordered {
                let vcpu = row.task.vcpu;
                self.complain(format!("vCPU {vcpu} twice in the round of {}", row.time_ns));
            }
            return Ok(());
        }
        let number = row.time_ns.saturating_sub(self.start_ns) / MINUTE_NS;
        if number > self.minute_number {
            self.minute.write(self.minute_number, out)?;
            self.minute_number = number;
            self.before_minute = self.round;
            self.minute = Minute::default();
        }
        self.minute.samples += 1;
        self.begin_round(row);
        Ok(())
    }

    /// There is a deadline in each period, anywhere in it: so many periods after another one, as many
    /// deadlines have passed, or one more or fewer.
    fn begin_round(&mut self, row: &Row<'_>) {
        let late_ns = row.details.late_ns.unwrap_or(0);
        let round = Round {
            time_ns: row.time_ns,
            deadline_ns: row.time_ns.saturating_sub(late_ns),
            last_vcpu: row.task.vcpu,
        };
        let first = *self.first.get_or_insert(round);
        if let Some(before) = self.round
            && before.time_ns > row.time_ns
        {
            self.complain(format!("{} ns after {} ns", row.time_ns, before.time_ns));
        }
        let since = self.before_minute.unwrap_or(first);
        self.minute.rounds += 1;
        self.minute.missed = self.passed(since, round).saturating_sub(self.minute.rounds);
        self.rounds += 1;
        self.missed = (self.passed(first, round) + 1).saturating_sub(self.rounds);
        self.minute.late_ns += late_ns;
        self.minute.longest_late_ns = self.minute.longest_late_ns.max(late_ns);
        self.minute.cost_ns += row.details.cost_ns.unwrap_or(0);
        self.round = Some(round);
    }

    /// Deadlines from one round's to another's, give or take one.
    fn passed(&self, from: Round, to: Round) -> u64 {
        let passed_ns = to.deadline_ns.saturating_sub(from.deadline_ns);
        (passed_ns as f64 / self.period_ns).round() as u64
    }

    /// Compares a simulated sample with what was simulated. `chains` remembers, by node plus 1,
    /// which stacks of the block were found to be which.
    fn compare(&mut self, samples: &SampleBlock, row: &Row<'_>, chains: &mut [Option<usize>]) {
        let Some(guest) = &self.guest else {
            return;
        };
        let round = self.rounds - 1;
        let (state, stack) = guest.state(round, row.task.vcpu);
        let node = row.node.map_or(0, |node| node as usize + 1);
        let known = *chains[node].get_or_insert_with(|| {
            let chain: Vec<_> = samples.chain(row.node).collect();
            guest.stack_of(&chain).unwrap_or(usize::MAX)
        });
        let counted = row.registers.map(|registers| registers.get(Guest::COUNTER));
        let right = match stack {
            Some(stack) => known == stack && counted == Some(Some(round)),
            None => row.node.is_none() && counted.is_none(),
        };
        if !right || row.state != state {
            let (vcpu, found) = (row.task.vcpu, row.state);
            self.complain(format!(
                "round {round}, vCPU {vcpu}: {} with stack {stack:?} was simulated, {} with stack \
                 {known} and counter {counted:?} was read",
                state.name(),
                found.name()
            ));
        }
    }

    /// Writes the totals; says whether all is well.
    ///
    /// # Errors
    /// What `out` returns.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<bool> {
        let total = |name: &str| {
            let totals = &self.end.as_ref()?.totals;
            Some(totals.iter().find(|(found, _)| found == name)?.1)
        };
        let lost = |name| self.lost.get(name).copied().unwrap_or(0);
        let last_ns = self.round.map_or(0, |round| round.time_ns - self.start_ns);
        // Deadlines after the last sample: at least the one that the end forestalled.
        let end_ns = self.end.as_ref().map_or(0, |end| end.time_ns);
        let last_deadline_ns = self.round.map_or(end_ns, |round| round.deadline_ns);
        let left_ns = end_ns.saturating_sub(last_deadline_ns);
        // And how far the first deadline is in its period is not known.
        let tail = (left_ns as f64 / self.period_ns) as u64 + 2;
        // A deadline that is missed loses a sample of each vCPU.
        let vcpus = self.tasks.len() as u64;
        let (missed, tail) = (self.missed * vcpus, tail * vcpus);
        let even = self.tasks.values().min() == self.tasks.values().max();
        writeln!(
            out,
            "total samples={} rounds={} missed={} blocks={} bytes={} seconds={:.3} vcpus={} \
             evenly={even} tail={tail} wrong={}",
            self.samples,
            self.rounds,
            missed,
            self.blocks,
            self.bytes,
            last_ns as f64 / 1e9,
            self.tasks.len(),
            self.wrong,
        )?;
        write!(out, "lost told={}", self.lost.values().sum::<u64>())?;
        for (reason, count) in &self.lost {
            write!(out, " {}={count}", reason.replace(' ', "_"))?;
        }
        let ended = self.end.as_ref().map_or("cut", |end| &end.message);
        writeln!(out, "\nended {ended}")?;
        for complaint in &self.complaints {
            writeln!(out, "wrong {complaint}")?;
        }
        let accounted = lost("deadline").abs_diff(missed) <= tail;
        Ok(self.wrong == 0 && accounted && total("samples") == Some(self.samples))
    }
}

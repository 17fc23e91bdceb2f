//! From the recording of an interval to messages in the spool. In: recordings. Out: files of the spool. An interval
//! that can't be converted costs only itself.

use super::Args;
use super::client::Client;
use super::deadline::Deadline;
use super::delivery::without_numbers;
use super::spool::Spool;
use crate::memory;
use crate::outcome::describe;
use crate::selection::say;
use std::collections::{HashSet, VecDeque};
use std::path::PathBuf;
use uniprof_report::push::{Message, Request, Slicing, messages};
use uniprof_report::recording::{Interval, Recording};
use uniprof_report::stacks::Tables;

/// Most different messages about images.
const SAID_MAX: usize = 20;

/// Makes messages of intervals.
pub struct Conversion<'a> {
    pub args: &'a Args,
    pub client: &'a Client,
    pub spool: &'a Spool,
    pub deadline: &'a Deadline,
    /// The messages in the spool that are of this recording, also those that were refused, the oldest first.
    pub own: VecDeque<PathBuf>,
    /// Samples of intervals that could not be converted, and profiles that the spool didn't take.
    pub lost_samples: u64,
    pub lost_profiles: u64,
    said: HashSet<String>,
}

impl<'a> Conversion<'a> {
    /// Messages for `client` into `spool`.
    pub fn new(
        args: &'a Args,
        client: &'a Client,
        spool: &'a Spool,
        deadline: &'a Deadline,
    ) -> Self {
        Conversion {
            args,
            client,
            spool,
            deadline,
            own: VecDeque::new(),
            lost_samples: 0,
            lost_profiles: 0,
            said: HashSet::new(),
        }
    }

    /// Says something once: its numbers may differ from interval to interval.
    pub fn say_once(&mut self, what: &str) {
        if self.said.len() < SAID_MAX && self.said.insert(without_numbers(what)) {
            say(what);
        }
    }

    /// Puts the messages of an interval into the spool.
    pub fn convert(&mut self, interval: Interval, tables: &Tables<'_>) {
        let spool = self.spool;
        self.own.retain(|path| spool.has(path));
        // A run of `push FILE` has these limits; this one reads many recordings.
        memory::limit();
        let (samples, times_ns) = (interval.samples, interval.times_ns);
        let converted = Recording::from_bytes("the recording", interval.bytes)
            .map_err(anyhow::Error::from)
            .and_then(|mut recording| {
                let placed = recording.assume_images(tables.library());
                placed.iter().for_each(|line| self.say_once(line));
                self.convert_recording(&recording, times_ns, tables)
            });
        if let Err(error) = converted {
            self.lost_samples += samples;
            self.say_once(&format!(
                "warning: an interval is lost: {}",
                describe(&error)
            ));
        }
    }

    fn convert_recording(
        &mut self,
        recording: &Recording,
        times_ns: [u64; 2],
        tables: &Tables<'_>,
    ) -> anyhow::Result<()> {
        let kinds = if self.args.off_cpu {
            &[false, true][..]
        } else {
            &[false]
        };
        for is_off_cpu in kinds {
            let request = Request {
                recording,
                tables,
                is_off_cpu: *is_off_cpu,
                progress: &|_, _| (),
                slicing: Slicing::Interval(times_ns),
            };
            let profile = messages(&request, self.client.protocol, &mut |message| {
                self.keep(&message);
                Ok(())
            })?;
            for warning in profile.warnings {
                self.say_once(&format!("warning: {warning}"));
            }
        }
        Ok(())
    }

    /// Puts a message into the spool, in the place of older ones of this recording if it is full.
    fn keep(&mut self, message: &Message) {
        let dropped = self.spool.dropped();
        match self.spool.add(message, &mut self.own) {
            Ok(added) => {
                self.own.extend(added);
                self.deadline.announce();
            }
            Err(error) => {
                self.lost_profiles += 1;
                self.say_once(&format!("warning: a profile is lost: {error}"));
            }
        }
        if self.spool.dropped() > dropped {
            self.say_once(&format!(
                "warning: the spool {} is full: from now on the oldest profiles of this recording are dropped; \
                 --spool-size raises its limit",
                self.spool.folder().display()
            ));
        }
    }
}

//! The recorder of a program that has not begun: it reports when it samples, so that the program may begin then.

use crate::backends::process::{Process, Refusal, Scope, perf, refusal};
use crate::source::plan::Plan;
use crate::source::ring::Sink;
use crate::source::{Facts, Hot, Life, Pushed, Source, SourceError};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Opens a process that this one traces, with all below it, and a channel that reports the start of sampling.
///
/// # Errors
/// Perf events are forbidden, which alone sample what is traced already; or another reason.
pub fn open(pid: i32, plan: &Plan) -> Result<(Source, Receiver<()>), SourceError> {
    let process = Process::Running(Scope::processes(vec![pid])?);
    let mut source = perf::open(&process, plan).map_err(|refusal| match refusal {
        Refusal::Forbidden(errno) => {
            let doing = "cannot open perf events, and ptrace can't sample a program that is slowed down with it";
            SourceError::system(doing, errno, &refusal::advice(errno, 1))
        }
        Refusal::Failed(error) => error,
    })?;
    let (tell, told) = sync_channel(1);
    source.hot = match source.hot {
        Hot::Pushed(source) => Hot::Pushed(Box::new(Announced { source, tell })),
        stopped @ Hot::StopWorld(_) => stopped,
    };
    Ok((source, told))
}

struct Announced {
    source: Box<dyn Pushed>,
    tell: SyncSender<()>,
}

impl Pushed for Announced {
    fn facts(&self) -> &Facts {
        self.source.facts()
    }

    fn start(&mut self) -> Result<(), SourceError> {
        self.source.start()?;
        // Nobody may wait for it any more.
        let _ = self.tell.try_send(());
        Ok(())
    }

    fn wait(&mut self, timeout_ms: u16) -> Result<(), SourceError> {
        self.source.wait(timeout_ms)
    }

    fn drain(&mut self, sink: &mut Sink) -> Result<Life, SourceError> {
        self.source.drain(sink)
    }

    fn finish(&mut self, sink: &mut Sink) {
        self.source.finish(sink);
    }

    fn totals(&self) -> Vec<(String, u64)> {
        self.source.totals()
    }
}

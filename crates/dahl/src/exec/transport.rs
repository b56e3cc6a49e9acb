//! Messages between ranks: the contract, and its implementation inside one process.

use crate::error::{Error, Result};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// What a message is for. Messages of one channel between two ranks arrive in the order in which
/// they were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// Commands of rank 0, with their samples and their answers.
    Control,
    /// The boxes of moves, in the order of the plan.
    Data,
}

/// Messages between the ranks (processes) of a run.
///
/// Both calls block; they are made on the lanes of a session, one lane per peer and direction, and
/// on the thread that drives it. Sender and receiver agree on the lengths: a message is received
/// in the parts that it is sent in.
pub trait Transport: Send + Sync {
    /// The rank of this process, from 0.
    fn rank(&self) -> u32;

    /// How many ranks there are.
    fn ranks(&self) -> u32;

    /// Sends the parts of a message. It returns once they may be overwritten.
    ///
    /// # Errors
    /// [`Error::Rank`] where a rank has ended the run.
    fn send(&self, to: u32, channel: Channel, parts: &[&[u8]]) -> Result<()>;

    /// Receives the parts of a message.
    ///
    /// # Errors
    /// [`Error::Rank`] where a rank has ended the run.
    fn receive(&self, from: u32, channel: Channel, parts: &mut [&mut [u8]]) -> Result<()>;

    /// Ends the run on all ranks: whoever waits for a message gets this reason.
    fn abort(&self, why: &str);
}

/// The bytes that a pipe holds: a sender waits once the receiver is so far behind.
const CAPACITY: usize = 256 << 10;

/// The transport of ranks that are threads of one process: a bounded pipe per pair of ranks and
/// channel.
pub struct InProcess {
    rank: u32,
    hub: Arc<Hub>,
}

struct Hub {
    ranks: u32,
    /// By sender, receiver and channel.
    pipes: Vec<Pipe>,
    /// The rank that has ended the run, and why.
    aborted: Mutex<Option<(u32, String)>>,
}

#[derive(Default)]
struct Pipe {
    bytes: Mutex<VecDeque<u8>>,
    changed: Condvar,
}

impl InProcess {
    /// One transport for each rank.
    pub fn new(ranks: u32) -> Vec<Self> {
        let pipes = (0..2 * ranks * ranks).map(|_| Pipe::default()).collect();
        let hub = Arc::new(Hub { ranks, pipes, aborted: Mutex::new(None) });
        (0..ranks).map(|rank| Self { rank, hub: hub.clone() }).collect()
    }

    fn pipe(&self, from: u32, to: u32, channel: Channel) -> &Pipe {
        let pair = from * self.hub.ranks + to;
        let channel = usize::from(channel == Channel::Data);
        &self.hub.pipes[2 * pair as usize + channel]
    }

    /// Whether the run goes on.
    fn check(&self) -> Result<()> {
        match &*lock(&self.hub.aborted) {
            Some((rank, why)) => Err(Error::Rank { rank: *rank, why: why.clone() }),
            None => Ok(()),
        }
    }

    /// Waits until a pipe is as wanted, or the run has ended.
    fn wait<'p>(
        &self,
        pipe: &'p Pipe,
        wanted: impl Fn(&VecDeque<u8>) -> bool,
    ) -> Result<MutexGuard<'p, VecDeque<u8>>> {
        let mut bytes = lock(&pipe.bytes);
        loop {
            if wanted(&bytes) {
                return Ok(bytes);
            }
            self.check()?;
            bytes = pipe.changed.wait(bytes).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Transport for InProcess {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn ranks(&self) -> u32 {
        self.hub.ranks
    }

    fn send(&self, to: u32, channel: Channel, parts: &[&[u8]]) -> Result<()> {
        self.check()?;
        let pipe = self.pipe(self.rank, to, channel);
        for part in parts {
            let mut rest = *part;
            while !rest.is_empty() {
                let mut bytes = self.wait(pipe, |bytes| bytes.len() < CAPACITY)?;
                let (now, later) = rest.split_at(rest.len().min(CAPACITY - bytes.len()));
                bytes.extend(now);
                rest = later;
                pipe.changed.notify_all();
            }
        }
        Ok(())
    }

    fn receive(&self, from: u32, channel: Channel, parts: &mut [&mut [u8]]) -> Result<()> {
        let pipe = self.pipe(from, self.rank, channel);
        for part in parts {
            let mut rest = &mut **part;
            while !rest.is_empty() {
                let mut bytes = self.wait(pipe, |bytes| !bytes.is_empty())?;
                let (first, _) = bytes.as_slices();
                let count = first.len().min(rest.len());
                let (now, later) = rest.split_at_mut(count);
                now.copy_from_slice(&first[..count]);
                bytes.drain(..count);
                rest = later;
                pipe.changed.notify_all();
            }
        }
        Ok(())
    }

    fn abort(&self, why: &str) {
        lock(&self.hub.aborted).get_or_insert_with(|| (self.rank, why.to_owned()));
        for pipe in &self.hub.pipes {
            // Whoever is about to wait holds the lock until it does.
            drop(lock(&pipe.bytes));
            pipe.changed.notify_all();
        }
    }
}

/// No thread panics while it holds one of these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn messages_arrive_in_order_in_other_sizes_than_the_pipe() {
        let [a, b]: [InProcess; 2] = InProcess::new(2).try_into().ok().unwrap();
        let large: Vec<u8> = (0..3 * CAPACITY + 5).map(|i| (i % 251) as u8).collect();
        let sent = large.clone();
        let sender = thread::spawn(move || {
            a.send(1, Channel::Data, &[&sent[..7], &[], &sent[7..]]).unwrap();
            a.send(1, Channel::Control, &[b"then"]).unwrap();
        });
        let mut control = [0; 4];
        let mut found = vec![0; large.len()];
        let (head, tail) = found.split_at_mut(7);
        b.receive(0, Channel::Data, &mut [head, tail]).unwrap();
        b.receive(0, Channel::Control, &mut [&mut control]).unwrap();
        sender.join().unwrap();
        assert_eq!((found, &control), (large, b"then"));
    }

    #[test]
    fn a_rank_that_ends_the_run_wakes_the_others() {
        let [a, b]: [InProcess; 2] = InProcess::new(2).try_into().ok().unwrap();
        let waiting = thread::spawn(move || {
            let received = b.receive(0, Channel::Data, &mut [&mut [0]]);
            let sent = b.send(0, Channel::Data, &[&vec![0; 2 * CAPACITY]]);
            [received, sent].map(|result| result.unwrap_err().to_string())
        });
        a.abort("its disk is full");
        let expected = "rank 0: its disk is full";
        assert_eq!(waiting.join().unwrap(), [expected, expected]);
    }
}

//! What rank 0 tells the other ranks, as messages.

use crate::error::{Error, Result};
use crate::exec::{Batch, Channel, Transport};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// What rank 0 tells the others to do.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Command {
    /// Read your samples of a batch into the next slot of a program.
    /// Of the batches announced before, those in `live` are still to be stepped with.
    Load { program: u32, batch: Batch, number: u64, live: Vec<u64> },
    /// A step on a batch that was announced; without one, the payload has the rows of its inputs.
    Step { program: u32, lr_bits: u64, counter: u64, loaded: Option<u64> },
    /// The step of a snapshot.
    Snapshot { program: u32 },
    /// Send bytes of a persistent value.
    Read { value: u32, bytes: Range<usize> },
    /// Write a persistent value: the payload.
    Write { value: u32 },
    /// Send the time of the session's clock.
    Clock,
    /// Send the events that were recorded.
    Trace,
    /// The run has ended.
    End,
}

/// Sends a command with the bytes that belong to it.
pub(super) fn send(
    transport: &dyn Transport,
    to: u32,
    command: &Command,
    payload: &[&[u8]],
) -> Result<()> {
    let text = serde_json::to_string(command).map_err(|error| unreadable(0, &error))?;
    send_text(transport, to, &text, payload)
}

/// Sends a text and the bytes that belong to it, with their lengths.
pub(super) fn send_text(
    transport: &dyn Transport,
    to: u32,
    text: &str,
    payload: &[&[u8]],
) -> Result<()> {
    let bytes: usize = payload.iter().map(|part| part.len()).sum();
    let lengths = [text.len(), bytes].map(|n| (n as u64).to_le_bytes()).concat();
    let parts: Vec<&[u8]> =
        [&lengths[..], text.as_bytes()].into_iter().chain(payload.iter().copied()).collect();
    transport.send(to, Channel::Control, &parts)
}

/// Receives a text and the bytes that belong to it.
pub(super) fn receive_text(transport: &dyn Transport, from: u32) -> Result<(String, Vec<u8>)> {
    let mut lengths = [0; 16];
    transport.receive(from, Channel::Control, &mut [&mut lengths])?;
    let length = |at: usize| {
        let bytes: [u8; 8] = lengths[at..at + 8].try_into().expect("eight bytes");
        u64::from_le_bytes(bytes) as usize
    };
    let (mut text, mut payload) = (vec![0; length(0)], vec![0; length(8)]);
    transport.receive(from, Channel::Control, &mut [&mut text, &mut payload])?;
    let text = String::from_utf8(text).map_err(|error| unreadable(from, &error))?;
    Ok((text, payload))
}

/// Receives a command and the bytes that belong to it.
pub(super) fn receive(transport: &dyn Transport) -> Result<(Command, Vec<u8>)> {
    let (text, payload) = receive_text(transport, 0)?;
    let command = serde_json::from_str(&text).map_err(|error| unreadable(0, &error))?;
    Ok((command, payload))
}

/// A message that this version of dahl does not send.
fn unreadable(from: u32, error: &dyn std::fmt::Display) -> Error {
    Error::Rank { rank: from, why: format!("a message that cannot be read: {error}") }
}

//! TensorBoard's event files: records of protobuf messages, of which a few fields
//! suffice.

use crate::train::EpochRecord;

/// The first record of a file.
pub(super) fn head() -> Vec<u8> {
    let mut event = Message::default();
    event.double(1, 0.0);
    event.bytes(3, b"brain.Event:2");
    record(&event.0)
}

/// The numbers of an epoch at the step that it ended with.
pub(super) fn epoch(epoch: &EpochRecord) -> Vec<u8> {
    let mut summary = Message::default();
    let passes = epoch.evaluated.iter().map(|(name, pass)| (name.as_str(), pass));
    let mut scalar = |name: &str, number: f64| {
        let mut value = Message::default();
        value.bytes(1, name.as_bytes());
        value.float(2, number as f32);
        summary.bytes(1, &value.0);
    };
    for (name, pass) in [("train", &epoch.train)].into_iter().chain(passes) {
        scalar(&format!("loss/{name}"), pass.loss());
        scalar(&format!("accuracy/{name}"), pass.accuracy());
    }
    epoch.lr.into_iter().for_each(|lr| scalar("learning_rate", lr));
    let mut event = Message::default();
    event.double(1, epoch.time);
    event.varint(2, epoch.steps);
    event.bytes(5, &summary.0);
    record(&event.0)
}

/// A protobuf message.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn key(&mut self, field: u64, kind: u64) {
        self.number(field << 3 | kind);
    }

    fn number(&mut self, number: u64) {
        let mut rest = number;
        while rest >= 0x80 {
            self.0.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.0.push(rest as u8);
    }

    fn varint(&mut self, field: u64, number: u64) {
        self.key(field, 0);
        self.number(number);
    }

    fn double(&mut self, field: u64, number: f64) {
        self.key(field, 1);
        self.0.extend(number.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.key(field, 2);
        self.number(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn float(&mut self, field: u64, number: f32) {
        self.key(field, 5);
        self.0.extend(number.to_le_bytes());
    }
}

/// A record of TensorFlow's format: length, its sum, data, its sum.
fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut bytes = length.to_vec();
    bytes.extend(masked(&length).to_le_bytes());
    bytes.extend(data);
    bytes.extend(masked(data).to_le_bytes());
    bytes
}

/// The CRC-32C in the form that TensorFlow stores.
fn masked(data: &[u8]) -> u32 {
    crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C (Castagnoli 1993), a bit at a time: an epoch has some hundred bytes.
fn crc32c(data: &[u8]) -> u32 {
    let bit = |crc: u32, _| crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
    !data.iter().fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), bit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::Pass;

    #[test]
    fn sums_are_those_of_the_standard() {
        // RFC 3720, B.4.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    /// The data of the records of a file, with their sums checked.
    fn records(bytes: &[u8]) -> Vec<&[u8]> {
        let (mut rest, mut found) = (bytes, Vec::new());
        while !rest.is_empty() {
            let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
            let sum = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
            let data = &rest[12..12 + length];
            assert_eq!((sum(8), sum(12 + length)), (masked(&rest[..8]), masked(data)));
            found.push(data);
            rest = &rest[16 + length..];
        }
        found
    }

    /// The fields of a message: number and bytes; a varint as its bytes.
    fn fields(message: &[u8]) -> Vec<(u64, &[u8])> {
        let varint = |bytes: &[u8]| {
            let end = bytes.iter().position(|b| b & 0x80 == 0).unwrap() + 1;
            let number = bytes[..end].iter().rev().fold(0, |n, b| n << 7 | u64::from(b & 0x7f));
            (number, end)
        };
        let (mut rest, mut found) = (message, Vec::new());
        while !rest.is_empty() {
            let (key, used) = varint(rest);
            let (length, skip) = match key & 7 {
                0 => (varint(&rest[used..]).1, 0),
                1 => (8, 0),
                2 => {
                    let (length, bytes) = varint(&rest[used..]);
                    (length as usize, bytes)
                }
                _ => (4, 0),
            };
            let (from, to) = (used + skip, used + skip + length);
            found.push((key >> 3, &rest[from..to]));
            rest = &rest[to..];
        }
        found
    }

    #[test]
    fn a_file_is_read_back() {
        let pass = Pass { samples: 4, correct: 3, total_loss: 2.0 };
        let evaluated = vec![("test".to_owned(), Pass { correct: 1, ..pass })];
        let (seconds, time, lr) = (1.0, 7.5, Some(0.125));
        let end = EpochRecord { epoch: 1, steps: 300, train: pass, evaluated, seconds, time, lr };
        let bytes = [head(), epoch(&end)].concat();
        let found = records(&bytes);
        assert_eq!(fields(found[0])[1], (3, &b"brain.Event:2"[..]));
        let event = fields(found[1]);
        assert_eq!(event[0], (1, &7.5f64.to_le_bytes()[..]));
        assert_eq!(event[1], (2, &[0xac, 0x02][..]));
        let values: Vec<(String, f32)> = fields(event[2].1)
            .iter()
            .map(|(_, value)| {
                let value = fields(value);
                let number = f32::from_le_bytes(value[1].1.try_into().unwrap());
                (String::from_utf8(value[0].1.to_vec()).unwrap(), number)
            })
            .collect();
        let expected = [
            ("loss/train", 0.5),
            ("accuracy/train", 0.75),
            ("loss/test", 0.5),
            ("accuracy/test", 0.25),
            ("learning_rate", 0.125),
        ];
        assert_eq!(values, expected.map(|(name, number)| (name.to_owned(), number)));
    }
}

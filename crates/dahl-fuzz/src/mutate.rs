//! Kept cases with a few changes: bytes, ranges, tokens, lines and numbers.
//!
//! Bytes at random do not get past a header, so everything begins with a file that is
//! read, and changes are of the kinds that parsers are wrong about.

use crate::Case;
use bolero::Driver;
use bolero::generator::ValueGenerator;
use std::ops::{Bound, Range};

/// Numbers that readers forget.
const NUMBERS: [&str; 24] = [
    "0",
    "-1",
    "1",
    "2",
    "-0.0",
    "0.5",
    "255",
    "256",
    "65536",
    "4294967295",
    "4294967296",
    "1000000000",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e9",
    "1e18",
    "1e-300",
    "1e308",
    "1e400",
    "-1e308",
    "nan",
    "inf",
];

/// The same for binary files.
const WORDS: [u64; 12] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    i64::MAX as u64,
    u64::MAX,
];

/// A token is repeated at most so often: deep enough for a parser that calls itself.
const MOST_REPEATS: usize = 4096;

/// No file gets longer by mutation.
const MOST_BYTES: usize = 1 << 18;

/// Makes cases from kept ones.
#[derive(Clone, Copy, Debug)]
pub struct Mutated<'a> {
    /// The kept cases.
    pub kept: &'a [Case],
    /// Makes checksums and lengths right again, so that what is behind them is read.
    pub repair: fn(&mut Case),
}

impl ValueGenerator for Mutated<'_> {
    type Output = Case;

    fn generate<D: Driver>(&self, driver: &mut D) -> Option<Case> {
        let mut case = pick(driver, self.kept)?.clone();
        if case.files.is_empty() {
            return Some(case);
        }
        for _ in 0..=below(driver, 4)? {
            let file = below(driver, case.files.len())?;
            let other = pick(driver, self.kept)?;
            let (_, other) = pick(driver, &other.files)?;
            change(driver, &mut case.files[file].1, other)?;
            case.files[file].1.truncate(MOST_BYTES);
        }
        if below(driver, 4)? > 0 {
            (self.repair)(&mut case);
        }
        Some(case)
    }
}

/// One change; the other file is what may be taken from elsewhere.
fn change<D: Driver>(driver: &mut D, bytes: &mut Vec<u8>, other: &[u8]) -> Option<()> {
    let length = bytes.len();
    match below(driver, 16)? {
        0 if length > 0 => bytes[below(driver, length)?] ^= 1 << below(driver, 8)?,
        1 if length > 0 => bytes[below(driver, length)?] = driver.produce()?,
        2 => bytes.truncate(below(driver, length + 1)?),
        3 => drop(bytes.drain(range(driver, length)?)),
        4 => {
            let copy = bytes[range(driver, length)?].to_vec();
            insert(bytes, below(driver, length + 1)?, &copy);
        }
        5 => {
            let (to, from) = (range(driver, length)?, range(driver, other.len())?);
            bytes.splice(to, other[from].iter().copied());
        }
        6 | 7 => overwrite(driver, bytes)?,
        8..=10 => {
            let numbers: Vec<Range<usize>> = tokens(bytes)
                .into_iter()
                .filter(|token| is_number(&bytes[token.clone()]))
                .collect();
            if !numbers.is_empty() {
                let token = pick(driver, &numbers)?.clone();
                bytes.splice(token, pick(driver, &NUMBERS)?.bytes());
            }
        }
        11 | 12 => of_tokens(driver, bytes, other)?,
        13 | 14 => of_lines(driver, bytes)?,
        _ => {
            let all = tokens(bytes);
            if !all.is_empty() {
                let token = pick(driver, &all)?.clone();
                let times = 1 + below(driver, MOST_REPEATS)?;
                let copies = bytes[token.clone()].repeat(times);
                insert(bytes, token.end, &copies[..copies.len().min(MOST_BYTES)]);
            }
        }
    }
    Some(())
}

/// Puts an extreme number over some bytes, in either order.
fn overwrite<D: Driver>(driver: &mut D, bytes: &mut [u8]) -> Option<()> {
    let width = 1 << below(driver, 4)?;
    if bytes.len() < width {
        return Some(());
    }
    // Headers are where numbers are.
    let most = bytes.len() - width + 1;
    let near = if below(driver, 2)? == 0 { most } else { most.min(64) };
    let at = below(driver, near)?;
    let word = *pick(driver, &WORDS)?;
    let (little, big) = (word.to_le_bytes(), word.to_be_bytes());
    let word = if below(driver, 2)? == 0 { &little[..width] } else { &big[8 - width..] };
    bytes[at..at + width].copy_from_slice(word);
    Some(())
}

fn of_tokens<D: Driver>(driver: &mut D, bytes: &mut Vec<u8>, other: &[u8]) -> Option<()> {
    let (all, others) = (tokens(bytes), tokens(other));
    if all.is_empty() || others.is_empty() {
        return Some(());
    }
    let token = pick(driver, &all)?.clone();
    let another = match below(driver, 4)? {
        0 => Vec::new(),
        1 => bytes[token.clone()].repeat(2),
        2 => bytes[pick(driver, &all)?.clone()].to_vec(),
        _ => other[pick(driver, &others)?.clone()].to_vec(),
    };
    bytes.splice(token, another);
    Some(())
}

fn of_lines<D: Driver>(driver: &mut D, bytes: &mut Vec<u8>) -> Option<()> {
    let mut lines: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
    if lines.is_empty() {
        return Some(());
    }
    let (one, two) = (below(driver, lines.len())?, below(driver, lines.len())?);
    match below(driver, 3)? {
        0 => drop(lines.remove(one)),
        1 => lines.insert(two, lines[one]),
        _ => lines.swap(one, two),
    }
    *bytes = lines.concat();
    Some(())
}

/// Words and numbers, and every other sign for itself.
fn tokens(bytes: &[u8]) -> Vec<Range<usize>> {
    let in_word = |byte: u8| byte.is_ascii_alphanumeric() || b"_.+-".contains(&byte);
    let mut found: Vec<Range<usize>> = Vec::new();
    for (i, &byte) in bytes.iter().enumerate() {
        match found.last_mut() {
            Some(last) if in_word(byte) && last.end == i && in_word(bytes[i - 1]) => last.end += 1,
            _ if byte.is_ascii_whitespace() => {}
            _ => found.push(i..i + 1),
        }
    }
    found
}

fn is_number(token: &[u8]) -> bool {
    std::str::from_utf8(token).is_ok_and(|text| text.parse::<f64>().is_ok())
}

fn insert(bytes: &mut Vec<u8>, at: usize, more: &[u8]) {
    bytes.splice(at..at, more.iter().copied());
}

fn range<D: Driver>(driver: &mut D, length: usize) -> Option<Range<usize>> {
    let (one, two) = (below(driver, length + 1)?, below(driver, length + 1)?);
    Some(one.min(two)..one.max(two))
}

fn pick<'a, T, D: Driver>(driver: &mut D, all: &'a [T]) -> Option<&'a T> {
    all.get(below(driver, all.len())?)
}

/// A number below another, which is at least 1.
fn below<D: Driver>(driver: &mut D, end: usize) -> Option<usize> {
    driver.gen_usize(Bound::Included(&0), Bound::Excluded(&end.max(1)))
}

//! Checksums and lengths that are made right after a mutation, so that what they protect
//! is read too.

use dahl_fuzz::Case;
use sha2::{Digest, Sha256};
use std::path::Path;

/// The header's length of `.npy` files of version 1.
pub(crate) fn numpy(case: &mut Case) {
    for (_, bytes) in &mut case.files {
        let end = bytes.iter().position(|&byte| byte == b'\n').map(|at| at + 1);
        if let Some(length) = end.and_then(|end| end.checked_sub(10))
            && bytes.get(6) == Some(&1)
        {
            bytes[8..10].copy_from_slice(&(length as u16).to_le_bytes());
        }
    }
}

/// The header's length of safetensors files: up to the last brace before the data.
pub(crate) fn safetensors(case: &mut Case) {
    for (name, bytes) in &mut case.files {
        if !name.ends_with(".safetensors") {
            continue;
        }
        // A brace in the data is taken for the header's end at times.
        let Some(brace) = bytes.iter().rposition(|&byte| byte == b'}') else { continue };
        let padding = bytes[brace + 1..].iter().take_while(|&&byte| byte == b' ').count();
        if let Some(length) = (brace + 1 + padding).checked_sub(8) {
            bytes[..8].copy_from_slice(&(length as u64).to_le_bytes());
        }
    }
}

/// The checksums of a PNG's chunks.
pub(crate) fn png(case: &mut Case) {
    for (_, bytes) in &mut case.files {
        let mut at = 8;
        while let Some(length) = bytes.get(at..at + 4) {
            let length = u32::from_be_bytes(length.try_into().unwrap()) as usize;
            let (from, to) = (at + 4, at + 8 + length.min(bytes.len()));
            let Some(content) = bytes.get(from..to) else { break };
            let sum = crc32(content).to_be_bytes();
            let Some(place) = bytes.get_mut(to..to + 4) else { break };
            place.copy_from_slice(&sum);
            at = to + 4;
        }
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    let step = |sum: u32, _| (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg());
    !bytes.iter().fold(!0, |sum, &byte| (0..8).fold(sum ^ u32::from(byte), step))
}

/// The sums of a checkpoint's files.
pub(crate) fn run_directory(case: &mut Case) {
    const SUMS: &str = "SHA256SUMS";
    safetensors(case);
    let lists = case.files.iter().filter_map(|(name, _)| name.strip_suffix(SUMS));
    for directory in lists.map(str::to_owned).collect::<Vec<_>>() {
        let beside = case.files.iter().filter_map(|(name, bytes)| {
            let file = name.strip_prefix(&directory).filter(|file| *file != SUMS)?;
            let sum = Sha256::digest(bytes);
            let digits: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
            Some(format!("{digits}  {file}\n"))
        });
        let sums = beside.collect::<String>().into_bytes();
        let list = case.files.iter_mut().find(|(name, _)| *name == format!("{directory}{SUMS}"));
        list.unwrap().1 = sums;
    }
}

/// A file that is right stays as it is.
#[test]
fn kept_cases_need_no_repair() {
    let check = |format: &str, repair: fn(&mut Case)| {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(format);
        for case in Case::all(&corpus) {
            let mut repaired = case.clone();
            repair(&mut repaired);
            assert!(repaired == case, "{format}: {case:?}");
        }
    };
    check("numpy", numpy);
    check("png", png);
    check("safetensors", safetensors);
    check("run_directory", run_directory);
}

//! How many pieces each worker gets, where workers are not alike.

use crate::units::WorkerId;
use std::ops::Range;

/// The workers of pieces that lie side by side: each of `own` gets so many in a row that
/// they are as its share of all shares; what is left over goes to those that lost most by
/// rounding, of equals to the first. Without shares all are alike.
pub(super) fn deal(pieces: usize, own: Range<usize>, shares: &[usize]) -> Vec<WorkerId> {
    let even = || (0..pieces).map(|p| WorkerId::new(own.start + p * own.len() / pieces)).collect();
    let Some(of) = shares.get(own.clone()) else { return even() };
    let whole: usize = of.iter().sum();
    if whole == 0 {
        return even();
    }
    let counts = apportion(pieces, of);
    let row = |(w, count): (usize, usize)| vec![WorkerId::new(w); count];
    own.zip(counts).flat_map(row).collect()
}

/// The worker of `own` that would have done soonest what it has and `work` more.
pub(super) fn least(work: u64, own: Range<usize>, shares: &[usize], load: &[u64]) -> WorkerId {
    let share = |w: usize| match shares.get(own.clone()) {
        Some(of) if of.iter().any(|share| *share > 0) => shares[w] as u128,
        _ => 1,
    };
    // Without shares, as small work goes to whoever has least.
    let extra = if shares.is_empty() { 0 } else { work };
    let end = |w: &usize| (u128::from(load[*w] + extra) << 32).checked_div(share(*w));
    let able = own.clone().filter(|w| share(*w) > 0);
    WorkerId::new(able.min_by_key(end).unwrap_or(own.start))
}

/// Parts of a whole number that are as the shares, by the largest remainders.
pub(crate) fn apportion(whole: usize, shares: &[usize]) -> Vec<usize> {
    let all: usize = shares.iter().sum::<usize>().max(1);
    let mut parts: Vec<usize> = shares.iter().map(|share| whole * share / all).collect();
    let mut order: Vec<usize> = (0..shares.len()).collect();
    order.sort_by_key(|&w| (std::cmp::Reverse(whole * shares[w] % all), w));
    let left = whole - parts.iter().sum::<usize>();
    order.iter().cycle().take(left).for_each(|&w| parts[w] += 1);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_dealt_as_the_shares_say() {
        let check = |pieces, own, shares: &[usize], expected: &[u32]| {
            let found: Vec<u32> = deal(pieces, own, shares).iter().map(|w| w.0).collect();
            assert_eq!(found, expected, "{pieces} {shares:?}");
        };
        check(4, 0..2, &[], &[0, 0, 1, 1]);
        check(3, 0..2, &[2, 1], &[0, 0, 1]);
        check(6, 0..2, &[2, 1], &[0, 0, 0, 0, 1, 1]);
        check(4, 0..2, &[2, 1], &[0, 0, 0, 1]);
        check(2, 0..2, &[0, 1], &[1, 1]);
        check(3, 1..3, &[9, 1, 2], &[1, 2, 2]);
        // Shares that leave nobody are none.
        check(2, 1..3, &[1, 0, 0], &[1, 2]);
    }

    #[test]
    fn work_that_is_not_cut_goes_to_who_ends_it_first() {
        assert_eq!(least(10, 0..2, &[], &[5, 5]), WorkerId(0));
        assert_eq!(least(10, 0..2, &[], &[6, 5]), WorkerId(1));
        // 30 at a speed of 2 is 15; 10 at a speed of 1 is 10.
        assert_eq!(least(10, 0..2, &[2, 1], &[20, 0]), WorkerId(1));
        assert_eq!(least(10, 0..2, &[2, 1], &[5, 0]), WorkerId(0));
        assert_eq!(least(10, 0..2, &[0, 1], &[0, 90]), WorkerId(1));
    }

    #[test]
    fn parts_sum_up() {
        for whole in 0..20 {
            for shares in [&[1, 1, 1][..], &[5, 3], &[0, 7, 2, 2]] {
                assert_eq!(apportion(whole, shares).iter().sum::<usize>(), whole);
            }
        }
    }
}

//! Latency and bandwidth of a link from measured times of messages of several sizes.
//!
//! The time of a message of b bytes is taken to be latency + b / bandwidth. Both are fitted with the
//! least sum of squares of relative errors; the latency is not negative. The model has no steps, such
//! as those of protocols that change with the size of a message: the intervals contain what
//! consecutive measurements imply.

use super::{Figure, Origin};

/// A measured message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Message {
    /// Its size.
    pub bytes: f64,
    /// The time until all of it has arrived.
    pub seconds: f64,
}

/// Latency and bandwidth of at least two messages of ascending sizes, if larger ones take longer on
/// the whole.
pub(super) fn fitted(messages: &[Message]) -> Option<[Figure; 2]> {
    // Relative errors: (l + b p) / s - 1, with 1 / s and b / s as regressors.
    let (mut xx, mut xy, mut yy, mut x, mut y) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for message in messages {
        let (a, b) = (1.0 / message.seconds, message.bytes / message.seconds);
        (xx, xy, yy, x, y) = (xx + a * a, xy + a * b, yy + b * b, x + a, y + b);
    }
    let determinant = xx * yy - xy * xy;
    let both = [(x * yy - y * xy) / determinant, (y * xx - x * xy) / determinant];
    let [latency, per_byte] = match both {
        [latency, per_byte] if latency >= 0.0 && per_byte > 0.0 => [latency, per_byte],
        _ => [0.0, y / yy],
    };
    if !(per_byte > 0.0 && per_byte.is_finite() && messages.len() > 1) {
        return None;
    }
    let measured = |value: f64, others: &mut dyn Iterator<Item = f64>| {
        let (mut low, mut high) = (value, value);
        for other in others {
            (low, high) = (low.min(other), high.max(other));
        }
        Figure { value, low, high, from: Origin::Measured }
    };
    let slopes = messages.windows(2).filter_map(|pair| {
        let slope = (pair[1].bytes - pair[0].bytes) / (pair[1].seconds - pair[0].seconds);
        (1.0..=1e18).contains(&slope).then_some(slope)
    });
    let starts =
        messages.iter().map(|message| (message.seconds - message.bytes * per_byte).max(0.0));
    let bandwidth = (1.0 / per_byte).clamp(1.0, 1e18);
    Some([measured(latency, &mut starts.into_iter()), measured(bandwidth, &mut slopes.into_iter())])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(of: &[(f64, f64)]) -> Vec<Message> {
        of.iter().map(|&(bytes, seconds)| Message { bytes, seconds }).collect()
    }

    #[test]
    fn messages_on_a_line_have_its_latency_and_bandwidth() {
        let on = |bytes: f64| (bytes, 5e-5 + bytes / 2e9);
        let [latency, bandwidth] = fitted(&messages(&[on(1e3), on(1e6), on(1e9)])).unwrap();
        assert!((latency.value - 5e-5).abs() < 1e-12 && (bandwidth.value / 2e9 - 1.0).abs() < 1e-9);
        assert!(bandwidth.high - bandwidth.low < 1e3 && latency.from == Origin::Measured);
    }

    #[test]
    fn intervals_contain_what_messages_imply() {
        // Large messages are faster than small ones let expect.
        let found = fitted(&messages(&[(1e4, 1e-4), (1e6, 1.5e-3), (1e8, 5e-2)])).unwrap();
        let [latency, bandwidth] = found;
        assert!(latency.low <= latency.value && latency.value <= latency.high);
        assert!(bandwidth.low < 1e9 && bandwidth.high > 2e9, "{bandwidth:?}");
        // A latency below 0 is 0.
        let [latency, bandwidth] = fitted(&messages(&[(1e6, 1e-3), (2e6, 3e-3)])).unwrap();
        assert!(latency.value == 0.0 && bandwidth.value > 6e8 && bandwidth.value < 1e9);
        // Times that do not grow have no bandwidth of their own: that of a zero latency is taken.
        let [latency, _] = fitted(&messages(&[(1e6, 1e-3), (2e6, 1e-3)])).unwrap();
        assert!(latency.value >= 0.0);
        assert_eq!(fitted(&messages(&[(1e6, 1e-3)])), None);
    }
}

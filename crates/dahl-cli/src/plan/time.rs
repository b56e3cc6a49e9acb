//! The time of a command, shared by its parts.

use std::time::Duration;

/// How much time a command has, by a clock that starts with it.
#[derive(Clone, Copy)]
pub(super) struct Time<'a> {
    pub(super) clock: &'a dyn Fn() -> Duration,
    pub(super) whole: Duration,
}

impl<'a> Time<'a> {
    /// What is left of it.
    pub(super) fn left(self) -> Duration {
        self.whole.saturating_sub((self.clock)())
    }

    /// Whether the next of so many parts has had its time: an equal share of what is left now.
    pub(super) fn share(self, parts: usize) -> impl Fn() -> bool + 'a {
        let until = (self.clock)() + self.left() / parts.max(1) as u32;
        move || (self.clock)() >= until
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn parts_share_what_is_left() {
        let now = Cell::new(Duration::ZERO);
        let clock = || now.get();
        let at = |seconds| now.set(Duration::from_secs(seconds));
        let time = Time { clock: &clock, whole: Duration::from_secs(30) };
        let first = time.share(3);
        at(9);
        assert!(!first());
        at(10);
        assert!(first());
        // The second needs little, so that the third has more than a third.
        let second = time.share(2);
        at(12);
        assert!(!second());
        let third = time.share(1);
        at(29);
        assert!(!third());
        at(30);
        assert!(third() && time.left().is_zero() && time.share(1)());
    }
}

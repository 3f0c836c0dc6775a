//! The pause flag.

use hetckpt_ir::entity::ResumePointId;

use crate::launch::Pause;

/// The flag and what decides when it is set.
pub(super) struct PauseFlag {
    when: Pause,
    is_set: bool,
    pub polls: u64,
    pub visits: Vec<u64>,
}

impl PauseFlag {
    pub(super) fn new(when: Pause, num_resume_points: usize) -> Self {
        Self {
            when,
            is_set: false,
            polls: 0,
            visits: vec![0; num_resume_points],
        }
    }

    pub(super) fn is_set(&self) -> bool {
        self.is_set
    }

    /// Someone comes to a resume point and asks whether to stop there.
    pub(super) fn poll(&mut self, point: ResumePointId) -> bool {
        let visits = self.visits.get_mut(point.index()).map_or(0, |v| {
            *v += 1;
            *v - 1
        });
        self.is_set |= match self.when {
            Pause::Never => false,
            Pause::AtPoll(number) => self.polls >= number,
            Pause::AtResumePoint { point: at, occurrence } => at == point && visits >= occurrence,
        };
        self.polls += 1;
        self.is_set
    }
}

//! Checks a model's batching settings.

use lgp_distributed::Batching;

/// The error in the settings, if any.
pub(super) fn check(batching: &Batching) -> Result<(), String> {
    let Batching { max, preferred, delay_us } = batching;
    if max.get() > Batching::MAX {
        return Err(format!("max is {max}, expected 1 to {}", Batching::MAX));
    }
    let (given, most) = (preferred.len(), Batching::PREFERRED_MAX);
    if given > most {
        return Err(format!("{given} preferred sizes, at most {most} are accepted"));
    }
    if let Some(size) = preferred.iter().find(|size| *size > max) {
        return Err(format!("preferred size {size}, expected at most max, which is {max}"));
    }
    let longest = Batching::DELAY_US_MAX;
    if *delay_us > longest {
        return Err(format!("delay_us is {delay_us}, expected at most {longest}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deployment::testing::repository;
    use crate::{DeployError, Deployment};

    #[test]
    fn batches_that_no_worker_makes_are_refused() {
        let (_folder, repository, model) = repository();
        let size = |n: u32| std::num::NonZeroU32::new(n).expect("not zero");
        let wish = |max, preferred: &[u32], delay_us| Deployment {
            batching: Some(Batching {
                max: size(max),
                preferred: preferred.iter().map(|n| size(*n)).collect(),
                delay_us,
            }),
            ..Deployment::default()
        };
        let good = wish(1_024, &[16, 4, 1_024], 10_000_000);
        good.save(&repository, &model.name).expect("all at their limits");
        assert_eq!(good.needs(&repository, &model).batching, good.batching);
        for (wrong, part) in [
            (wish(1_025, &[], 0), "max is 1025, expected 1 to 1024"),
            (wish(8, &[4, 9], 0), "preferred size 9, expected at most max, which is 8"),
            (wish(8, &[1; 17], 0), "17 preferred sizes, at most 16"),
            (wish(8, &[], 10_000_001), "delay_us is 10000001, expected at most 10000000"),
        ] {
            let error = wrong.save(&repository, &model.name).expect_err(part);
            assert!(matches!(error, DeployError::Batching { .. }), "{error:?}");
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}

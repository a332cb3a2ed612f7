//! Statistics of the values that stored weights are multiplied with, gathered weight by weight so
//! that few of the large matrices are in memory at once.

use super::inputs::Inputs;
use super::observe::observe;
use super::sites::Site;
use super::technique::Scene;
use crate::error::{Error, Result};
use lgp_inference::{Model, Structure};
use std::collections::{BTreeMap, BTreeSet};

/// Vectors that one value of one run adds at most.
pub(crate) const VECTORS_MAX: usize = 512;
/// Second moments of so many bytes are gathered at once, or one matrix alone.
const BYTES_MAX: usize = 256 << 20;

/// Shows each site with the statistics of its vectors; `None` for a site whose channels have
/// weights of their own. Sites that read the same value share the statistics.
///
/// # Errors
/// Those of the runs and of `each`; values that are not finite.
pub(crate) fn with_statistics<'s>(
    (model, structure): (&Model, &Structure),
    sites: &'s [Site],
    scene: &Scene<'_>,
    each: &mut dyn FnMut(&'s Site, Option<&Inputs>) -> Result<()>,
) -> Result<()> {
    for site in sites.iter().filter(|site| site.summed.is_none()) {
        each(site, None)?;
    }
    // The same value through other windows has other vectors.
    let mut readers: BTreeMap<(String, String), Vec<&Site>> = BTreeMap::new();
    for site in sites.iter().filter(|site| site.summed.is_some()) {
        let windows = format!("{:?} {:?}", site.windows, taps(site));
        readers.entry((site.activation.clone(), windows)).or_default().push(site);
    }
    let readers: Vec<Vec<&Site>> = readers.into_values().collect();
    for group in groups(readers) {
        let names: BTreeSet<String> =
            group.iter().map(|sites| sites[0].activation.clone()).collect();
        let mut found: Vec<Option<Inputs>> = vec![None; group.len()];
        let part = &scene.samples.calibration;
        observe((model, structure), &names, part, scene.work, &mut |name, value| {
            for (sites, found) in group.iter().zip(&mut found) {
                let Some(site) = sites.first().filter(|site| site.activation == name) else {
                    continue;
                };
                let Some(vectors) = site.vectors(value, VECTORS_MAX)? else { continue };
                let inputs = found.get_or_insert_with(|| Inputs::new(vectors.ncols(), false));
                inputs.add(vectors.view(), None).map_err(|error| {
                    Error::compression("calibrate", format!("value '{name}': {error}"))
                })?;
            }
            Ok(())
        })?;
        for (sites, found) in group.iter().zip(&found) {
            for site in sites {
                scene.work.check()?;
                each(site, found.as_ref())?;
            }
        }
    }
    Ok(())
}

fn taps(site: &Site) -> Vec<usize> {
    let others = (0..site.shape.len()).filter(|&a| a != site.n_axis && Some(a) != site.k_axis);
    others.map(|axis| site.shape[axis]).collect()
}

/// Readers of values in groups whose matrices fit.
fn groups(readers: Vec<Vec<&Site>>) -> Vec<Vec<Vec<&Site>>> {
    let mut groups: Vec<Vec<Vec<&Site>>> = Vec::new();
    let mut held = BYTES_MAX;
    for sites in readers {
        let columns = sites.first().map_or(0, |site| {
            site.shape.iter().product::<usize>() / site.shape[site.n_axis].max(1)
        });
        let bytes = columns.saturating_mul(columns).saturating_mul(4);
        if groups.is_empty() || held.saturating_add(bytes) > BYTES_MAX {
            groups.push(Vec::new());
            held = 0;
        }
        held = held.saturating_add(bytes);
        if let Some(group) = groups.last_mut() {
            group.push(sites);
        }
    }
    groups
}

//! The settings of NSGA-II.

use crate::error::{Error, Result};

/// Settings of the search.
#[derive(Clone, Debug, PartialEq)]
pub struct EvolveConfig {
    /// The genes of a genome, 1 or more.
    pub genes: usize,
    /// The individuals of a generation, 2 or more.
    pub population: usize,
    /// The generations after the first, random one.
    pub generations: usize,
    /// The probability that two parents mix their genes, in [0, 1].
    pub crossover_probability: f64,
    /// The probability that a gene mutates, in [0, 1].
    pub mutation_probability: f64,
    /// η of the polynomial mutation, 0 or more; a higher one makes smaller steps.
    pub distribution_index: f64,
}

impl EvolveConfig {
    /// The settings of NSGA-II's paper, section IV: 100 individuals, 250 generations, crossover 0.9,
    /// mutation 1/genes, η = 20.
    #[must_use]
    pub fn new(genes: usize) -> Self {
        Self {
            genes,
            population: 100,
            generations: 250,
            crossover_probability: 0.9,
            mutation_probability: 1.0 / genes.max(1) as f64,
            distribution_index: 20.0,
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        let number = |name, value: f64, expected| {
            Err(Error::Setting { name, value: value.to_string(), expected })
        };
        if self.genes == 0 {
            return number("genes", 0.0, "1 or more");
        }
        if self.population < 2 {
            return number("population", self.population as f64, "2 or more");
        }
        if !(0.0..=1.0).contains(&self.crossover_probability) {
            return number("crossover_probability", self.crossover_probability, "0 to 1");
        }
        if !(0.0..=1.0).contains(&self.mutation_probability) {
            return number("mutation_probability", self.mutation_probability, "0 to 1");
        }
        if !(self.distribution_index >= 0.0 && self.distribution_index.is_finite()) {
            return number("distribution_index", self.distribution_index, "0 or more");
        }
        Ok(())
    }
}

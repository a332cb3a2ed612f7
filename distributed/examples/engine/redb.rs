//! redb in a file, as a single coordinator uses it. Its transactions run one at a time.

use crate::{Engine, Load, Result, Times, drive};
use redb::{Database, TableDefinition};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const RECORDS: TableDefinition<'_, (u64, i64), &[u8]> = TableDefinition::new("records");

struct File(Arc<Database>);

impl Engine for File {
    fn commit(&mut self, numbers: &[i64], bytes: &[u8], _is_end: bool) -> Result<()> {
        let txn = self.0.begin_write()?;
        {
            let mut table = txn.open_table(RECORDS)?;
            for number in numbers {
                table.insert((1, *number), bytes)?;
            }
        }
        // The default durability, which syncs.
        Ok(txn.commit()?)
    }
}

pub(crate) fn run(path: &Path, load: Load) -> Result<(Times, Duration)> {
    let database = Arc::new(Database::create(path)?);
    drive(load, || Ok(File(Arc::clone(&database))))
}

//! Calls for shared memory regions; in this protocol an empty name means all of the caller's.

use super::proto::system_shared_memory_status_response::RegionStatus;
use super::proto::{SystemSharedMemoryRegisterRequest, SystemSharedMemoryStatusResponse};
use super::service::Service;
use crate::access::Caller;
use crate::fault::Fault;
use crate::peer::Peer;
use crate::shared_memory::{Place, of_this_machine};

impl Service {
    pub(super) fn regions(
        &self,
        caller: &Caller,
        name: &str,
    ) -> Result<SystemSharedMemoryStatusResponse, Fault> {
        let listed = self.state().regions().list(caller, named(name))?;
        let regions = listed.into_iter().map(|(name, Place { key, offset, byte_size })| {
            (name.clone(), RegionStatus { name, key, offset, byte_size })
        });
        Ok(SystemSharedMemoryStatusResponse { regions: regions.collect() })
    }

    pub(super) fn register_region(
        &self,
        caller: &Caller,
        peer: &Peer,
        message: SystemSharedMemoryRegisterRequest,
    ) -> Result<(), Fault> {
        of_this_machine(peer.is_local())?;
        let SystemSharedMemoryRegisterRequest { name, key, offset, byte_size } = message;
        let caller = (caller, self.state().access());
        self.state().regions().register(caller, &name, Place { key, offset, byte_size })
    }

    pub(super) fn unregister_regions(&self, caller: &Caller, name: &str) {
        self.state().regions().unregister(caller, named(name));
    }
}

fn named(name: &str) -> Option<&str> {
    Some(name).filter(|name| !name.is_empty())
}

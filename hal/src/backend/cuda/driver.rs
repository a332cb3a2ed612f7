//! The driver library: its functions, and the codes that they answer.

use super::library::{self, Status, done, file_of, function, functions};
use crate::backend::Missing;
use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction,
    CUfunction_attribute, CUmodule, CUresult, CUstream,
};
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ops::Deref;

/// The driver's file. The name without a version comes with development packages.
const NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

functions! {
    /// The functions of a driver.
    Functions: CUresult {
        cuInit(c_uint);
        cuDriverGetVersion(*mut c_int);
        cuDeviceGetCount(*mut c_int);
        cuDeviceGet(*mut CUdevice, c_int);
        cuDeviceGetName(*mut c_char, c_int, CUdevice);
        cuDeviceTotalMem_v2(*mut usize, CUdevice);
        cuDeviceGetAttribute(*mut c_int, CUdevice_attribute, CUdevice);
        cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice);
        cuDevicePrimaryCtxRelease_v2(CUdevice);
        cuCtxGetCurrent(*mut CUcontext);
        cuCtxSetCurrent(CUcontext);
        cuCtxSynchronize();
        cuStreamCreate(*mut CUstream, c_uint);
        cuStreamDestroy_v2(CUstream);
        cuStreamSynchronize(CUstream);
        cuStreamWaitEvent(CUstream, CUevent, c_uint);
        cuMemGetInfo_v2(*mut usize, *mut usize);
        cuMemAlloc_v2(*mut CUdeviceptr, usize);
        cuMemFree_v2(CUdeviceptr);
        cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
        cuMemFreeHost(*mut c_void);
        cuMemcpyHtoDAsync_v2(CUdeviceptr, *const c_void, usize, CUstream);
        cuMemcpyDtoHAsync_v2(*mut c_void, CUdeviceptr, usize, CUstream);
        cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, usize, CUstream);
        cuModuleLoadData(*mut CUmodule, *const c_void);
        cuModuleUnload(CUmodule);
        cuModuleGetFunction(*mut CUfunction, CUmodule, *const c_char);
        cuFuncGetAttribute(*mut c_int, CUfunction_attribute, CUfunction);
        cuLaunchKernel(
            CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream,
            *mut *mut c_void, *mut *mut c_void
        );
        cuEventCreate(*mut CUevent, c_uint);
        cuEventDestroy_v2(CUevent);
        cuEventRecord(CUevent, CUstream);
        cuEventQuery(CUevent);
        cuEventSynchronize(CUevent);
        cuEventElapsedTime(*mut f32, CUevent, CUevent);
    }
}

/// `cuGetErrorName`. It stands apart because it takes a code that the bindings need not know.
type GetErrorName = unsafe extern "C" fn(u32, *mut *const c_char) -> u32;

/// A loaded and initialised driver.
#[derive(Debug, Clone, Copy)]
pub(super) struct Driver {
    functions: Functions,
    get_error_name: GetErrorName,
}

impl Deref for Driver {
    type Target = Functions;

    fn deref(&self) -> &Functions {
        &self.functions
    }
}

impl Driver {
    /// Loads and initialises the driver. A file that is no driver is passed over if another one is.
    ///
    /// # Errors
    /// What is missing, in the first file that was found.
    pub(super) fn load() -> Result<Self, Missing> {
        let mut refusal = None;
        for library in NAMES.into_iter().filter_map(library::load) {
            match Self::of(&library).and_then(Self::initialised) {
                Ok(driver) => return Ok(driver),
                Err(missing) => refusal = refusal.or(Some(missing)),
            }
        }
        Err(refusal.unwrap_or_else(|| {
            let absent = "the NVIDIA driver library (libcuda.so.1) is not installed";
            Missing::Library(absent.to_owned())
        }))
    }

    fn of(library: &Library) -> Result<Self, Missing> {
        let lacking =
            |name: &str| Missing::Driver(format!("the NVIDIA driver is too old: it has no {name}"));
        let functions = Functions::of(library).map_err(lacking)?;
        // SAFETY: the function has this type, except that it takes the code as a number.
        let get_error_name = unsafe { function::<GetErrorName>(library, "cuGetErrorName") };
        let get_error_name = get_error_name.ok_or_else(|| lacking("cuGetErrorName"))?;
        Ok(Self { functions, get_error_name })
    }

    fn initialised(self) -> Result<Self, Missing> {
        // SAFETY: any thread may make this call at any time.
        match done(unsafe { (self.cuInit)(0) }) {
            Ok(()) => Ok(self),
            Err(status) if is(status, CUresult::CUDA_ERROR_STUB_LIBRARY) => {
                let file = file_of(self.cuInit as *const c_void);
                let file =
                    file.map_or_else(|| "libcuda.so".to_owned(), |it| it.display().to_string());
                Err(Missing::Driver(format!(
                    "{file} is CUDA's library for linking, no driver: remove its folder from \
                     LD_LIBRARY_PATH"
                )))
            }
            Err(status) if is(status, CUresult::CUDA_ERROR_NO_DEVICE) => {
                Err(Missing::Devices("the NVIDIA driver sees no device".to_owned()))
            }
            Err(status) => Err(self.refusal("cuInit")(status)),
        }
    }

    /// The reason of a driver that refuses a call before any device is open.
    pub(super) fn refusal(&self, call: &'static str) -> impl Fn(Status) -> Missing {
        move |status| {
            let code = self.code(status);
            Missing::Driver(format!("the NVIDIA driver refuses {call}: {code}"))
        }
    }

    /// The driver's name of a code.
    pub(super) fn code(&self, status: Status) -> String {
        let mut name = std::ptr::null();
        // SAFETY: the call takes any code and writes a pointer into the given place.
        let found = done(unsafe { (self.get_error_name)(status.0, &raw mut name) });
        if found.is_err() || name.is_null() {
            return format!("error {}", status.0);
        }
        // SAFETY: the name is a string of the driver's, which is never unloaded.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }

    /// The newest CUDA version that the driver supports, major and minor; zeros if it reports none.
    pub(super) fn version(&self) -> (i32, i32) {
        let mut version = 0;
        // SAFETY: the call writes one integer into the given place.
        let answer = done(unsafe { (self.cuDriverGetVersion)(&raw mut version) });
        answer.map_or((0, 0), |()| (version / 1000, version % 1000 / 10))
    }
}

/// Whether a status is this code.
pub(super) fn is(status: Status, code: CUresult) -> bool {
    status.0 == code as u32
}

/// The errors of a kernel or of the hardware after which the driver refuses the whole process: a
/// context that is made anew answers with them again.
const OF_THE_PROCESS: [CUresult; 14] = [
    CUresult::CUDA_ERROR_ECC_UNCORRECTABLE,
    CUresult::CUDA_ERROR_CONTAINED,
    CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
    CUresult::CUDA_ERROR_LAUNCH_TIMEOUT,
    CUresult::CUDA_ERROR_ASSERT,
    CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR,
    CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION,
    CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
    CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE,
    CUresult::CUDA_ERROR_INVALID_PC,
    CUresult::CUDA_ERROR_LAUNCH_FAILED,
    CUresult::CUDA_ERROR_TENSOR_MEMORY_LEAK,
    CUresult::CUDA_ERROR_MPS_CLIENT_TERMINATED,
    CUresult::CUDA_ERROR_EXTERNAL_DEVICE,
];

/// The other errors after which the driver refuses every call in the context.
const OF_THE_CONTEXT: [CUresult; 6] = [
    CUresult::CUDA_ERROR_DEINITIALIZED,
    CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE,
    CUresult::CUDA_ERROR_INVALID_CONTEXT,
    CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE,
    CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED,
    CUresult::CUDA_ERROR_UNKNOWN,
];

/// Whether the driver refuses every call in the context after this status.
pub(super) fn is_loss(status: Status) -> bool {
    needs_restart(status) || OF_THE_CONTEXT.into_iter().any(|code| is(status, code))
}

/// Whether the driver refuses the whole process after this status.
pub(super) fn needs_restart(status: Status) -> bool {
    OF_THE_PROCESS.into_iter().any(|code| is(status, code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_told_from_refusals() {
        use CUresult as Code;
        for (code, lost, restart) in [
            (Code::CUDA_ERROR_ILLEGAL_ADDRESS, true, true),
            (Code::CUDA_ERROR_LAUNCH_FAILED, true, true),
            (Code::CUDA_ERROR_ECC_UNCORRECTABLE, true, true),
            (Code::CUDA_ERROR_CONTAINED, true, true),
            (Code::CUDA_ERROR_TENSOR_MEMORY_LEAK, true, true),
            (Code::CUDA_ERROR_MPS_CLIENT_TERMINATED, true, true),
            // Another process may hold the device for itself, or the driver is not set up.
            (Code::CUDA_ERROR_DEVICE_UNAVAILABLE, true, false),
            (Code::CUDA_ERROR_UNKNOWN, true, false),
            (Code::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, false, false),
            (Code::CUDA_ERROR_OUT_OF_MEMORY, false, false),
            (Code::CUDA_ERROR_INVALID_VALUE, false, false),
            (Code::CUDA_ERROR_NOT_READY, false, false),
        ] {
            let status = Status(code as u32);
            assert_eq!((is_loss(status), needs_restart(status)), (lost, restart), "{code:?}");
        }
    }
}

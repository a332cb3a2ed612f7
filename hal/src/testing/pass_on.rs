//! A macro for devices and queues that change a part of another one's behaviour and delegate the
//! rest.

/// Writes the named methods of [`Device`](crate::Device) or [`Queue`](crate::Queue) as calls of the
/// device or queue in a field: `pass_on!(inner: name, caps)` inside the `impl`.
#[doc(hidden)]
#[macro_export]
macro_rules! pass_on {
    ($at:tt: $($method:ident),+) => { $($crate::pass_on!(@ $method $at);)+ };
    (@ id $at:tt) => {
        fn id(&self) -> $crate::DeviceId {
            self.$at.id()
        }
    };
    (@ name $at:tt) => {
        fn name(&self) -> &str {
            self.$at.name()
        }
    };
    (@ caps $at:tt) => {
        fn caps(&self) -> &$crate::Caps {
            self.$at.caps()
        }
    };
    (@ free_bytes $at:tt) => {
        fn free_bytes(&self) -> Option<u64> {
            self.$at.free_bytes()
        }
    };
    (@ allocate $at:tt) => {
        fn allocate(&self, bytes: usize) -> $crate::Result<std::sync::Arc<dyn $crate::Buffer>> {
            self.$at.allocate(bytes)
        }
    };
    (@ queue $at:tt) => {
        fn queue(&self) -> $crate::Result<Box<dyn $crate::Queue>> {
            self.$at.queue()
        }
    };
    (@ blas $at:tt) => {
        fn blas(&self) -> Option<std::sync::Arc<dyn $crate::Blas>> {
            self.$at.blas()
        }
    };
    (@ pinned $at:tt) => {
        fn pinned(&self, bytes: usize) -> $crate::Result<$crate::Pinned> {
            self.$at.pinned(bytes)
        }
    };
    (@ compile $at:tt) => {
        fn compile(
            &self,
            source: &str,
            options: &str,
        ) -> $crate::Result<std::sync::Arc<dyn $crate::Program>> {
            self.$at.compile(source, options)
        }
    };
    (@ load $at:tt) => {
        unsafe fn load(
            &self,
            binary: &[u8],
        ) -> $crate::Result<std::sync::Arc<dyn $crate::Program>> {
            // SAFETY: the caller's promise is passed on.
            unsafe { self.$at.load(binary) }
        }
    };
    (@ arithmetic $at:tt) => {
        fn arithmetic(&self, operands: &$crate::Operands) -> $crate::Result<$crate::Outcomes> {
            self.$at.arithmetic(operands)
        }
    };
    (@ device $at:tt) => {
        fn device(&self) -> $crate::DeviceId {
            self.$at.device()
        }
    };
    (@ write $at:tt) => {
        fn write(
            &mut self,
            buffer: &dyn $crate::Buffer,
            offset: usize,
            data: &[u8],
        ) -> $crate::Result<()> {
            self.$at.write(buffer, offset, data)
        }
    };
    (@ read $at:tt) => {
        fn read(
            &mut self,
            buffer: &dyn $crate::Buffer,
            offset: usize,
            out: &mut [u8],
        ) -> $crate::Result<()> {
            self.$at.read(buffer, offset, out)
        }
    };
    (@ write_async $at:tt) => {
        fn write_async(
            &mut self,
            buffer: &dyn $crate::Buffer,
            offset: usize,
            block: $crate::Pinned,
            bytes: usize,
        ) -> $crate::Result<$crate::Transfer> {
            self.$at.write_async(buffer, offset, block, bytes)
        }
    };
    (@ read_async $at:tt) => {
        fn read_async(
            &mut self,
            buffer: &dyn $crate::Buffer,
            offset: usize,
            block: $crate::Pinned,
            bytes: usize,
        ) -> $crate::Result<$crate::Transfer> {
            self.$at.read_async(buffer, offset, block, bytes)
        }
    };
    (@ copy $at:tt) => {
        fn copy(
            &mut self,
            from: &dyn $crate::Buffer,
            from_offset: usize,
            to: &dyn $crate::Buffer,
            to_offset: usize,
            bytes: usize,
        ) -> $crate::Result<()> {
            self.$at.copy(from, from_offset, to, to_offset, bytes)
        }
    };
    (@ launch $at:tt) => {
        unsafe fn launch(&mut self, launch: &$crate::Launch<'_>) -> $crate::Result<()> {
            // SAFETY: the caller's promise is passed on.
            unsafe { self.$at.launch(launch) }
        }
    };
    (@ record $at:tt) => {
        fn record(&mut self) -> $crate::Result<std::sync::Arc<dyn $crate::Event>> {
            self.$at.record()
        }
    };
    (@ wait_for $at:tt) => {
        fn wait_for(&mut self, event: &dyn $crate::Event) -> $crate::Result<()> {
            self.$at.wait_for(event)
        }
    };
    (@ submit $at:tt) => {
        fn submit(&mut self) -> $crate::Result<()> {
            self.$at.submit()
        }
    };
    (@ finish $at:tt) => {
        fn finish(&mut self) -> $crate::Result<()> {
            self.$at.finish()
        }
    };
    (@ as_any_mut $at:tt) => {
        fn as_any_mut(&mut self) -> &mut dyn std::any::Any {
            self.$at.as_any_mut()
        }
    };
}

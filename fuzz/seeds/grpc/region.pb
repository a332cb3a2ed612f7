
m"
sequence_idx"
binary_data_output*I
fFP32"
shared_memory_regionr"
shared_memory_byte_size
#include "base/device_operands.hpp"

#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::comm::detail {

bool is_16_or_32_bit_float(Dtype dtype) {
  return dtype == Dtype::fp32 || dtype == Dtype::fp16 || dtype == Dtype::bf16;
}

void expect_on_device(Operation const& operation, void const* data) {
  TESSERA_VALIDATE(operation.numel == 0 || memory::on_device(data), InternalError,
                   describe(operation),
                   ": one operand is in device memory, the other in host memory");
}

void expect_convertible(Operation const& operation, memory::TensorView in, memory::TensorView out,
                        memory::WriteMode mode) {
  bool const converts = mode == memory::WriteMode::add || in.dtype() != out.dtype();
  TESSERA_VALIDATE(
      !converts || (is_16_or_32_bit_float(in.dtype()) && is_16_or_32_bit_float(out.dtype())),
      InternalError, describe(operation),
      ": on a device accumulation and conversion need fp32, fp16 or bf16, not ",
      name_of(in.dtype()), " to ", name_of(out.dtype()));
}

void check_shards(char const* what, StridedShards const& shards, int ranks, std::int64_t numel) {
  TESSERA_VALIDATE(shards_fit(shards, ranks, numel), InternalError, what, ": ",
                   describe(shards, ranks), " do not fit into ", numel, " elements");
}

std::shared_ptr<void> allocate_on_all_ranks(Collectives& comm, std::string const& name,
                                            memory::Purpose purpose, std::size_t bytes) {
  std::shared_ptr<memory::Buffer> buffer;
  std::string failure;
  try {
    buffer = std::make_shared<memory::Buffer>(name, purpose, bytes, memory::MemorySpace::device);
  } catch (OutOfMemoryError const& error) {
    failure = error.what();
  }
  bool const all = agree(comm, failure.empty());
  TESSERA_VALIDATE(failure.empty(), OutOfMemoryError, failure);
  TESSERA_VALIDATE(all, OutOfMemoryError, "another rank cannot allocate ",
                   human_bytes(static_cast<std::int64_t>(bytes)), " of device memory for ", name,
                   "; see the log of that rank for what its device holds");
  void* const data = buffer->data();
  return {std::move(buffer), data};
}

}  // namespace tessera::comm::detail

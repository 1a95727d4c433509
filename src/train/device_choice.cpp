#include "tessera/train/device_choice.hpp"

#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::train {

int choose_device(TrainingArguments const& arguments, topology::MpiSession const& session, comm::Collectives& comm) {
  if (arguments.use_cpu || (!memory::built_with_cuda() && !arguments.needs_cuda)) return -1;
  auto const found = memory::find_devices();
  auto const& info = session.info();
  // the lowest rank without a device speaks for all
  auto const first_without = comm::all_reduce_value(comm, std::int64_t{found.count > 0 ? info.world_size : info.rank}, comm::ReduceOp::min);
  if (first_without == info.world_size) return info.local_rank % found.count;
  std::string const why = comm::broadcast_bytes(comm, found.reason, static_cast<int>(first_without));
  std::string const where = concat("rank ", first_without, " on ", session.hosts()[static_cast<std::size_t>(first_without)]);
  TESSERA_VALIDATE(!arguments.needs_cuda, ConfigError, "--device cuda: no GPU for ", where, ": ", why,
                   ". Run on nodes with GPUs, or compute on the host with --device cpu");
  if (info.rank == 0) log::info(concat("no GPU for ", where, ": ", why, "; all ranks compute on the host (--device cuda would refuse)"));
  return -1;
}

}  // namespace tessera::train

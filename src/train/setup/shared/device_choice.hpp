#pragma once
/// Whether a run uses GPUs, and which GPU this rank uses.

#include "tessera/comm/base/collectives.hpp"
#include "tessera/config/arguments.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/topology/mpi_session.hpp"

namespace tessera::train {

/// Ordinal of this rank's device among those visible to the process, or -1: all ranks compute on
/// the host. With --device auto a build for GPUs logs the reason. Applies --device_memory, which
/// simulates a device where there is no GPU, and --host_memory. Collective.
/// @throws ConfigError on every rank if --device gpu is given and a rank has no device, or if
/// --fp8 is given and a rank's device has no fp8 products, or for --nccl_cta_policy zero with a
/// driver older than 12.5
int choose_device(config::TrainingArguments const& arguments, topology::MpiSession const& session,
                  comm::Collectives& comm);

/// @throws ConfigError when the driver is too old for NCCL's collectives by copy engines (CUDA
/// 12.5), naming @p where
void require_copy_engines(memory::DeviceInfo const& device, std::string const& where);
/// @throws ConfigError for a device without fp8 products, of @p where: "rank 0 on node1"
void require_fp8(memory::DeviceInfo const& device, std::string const& where);
/// Logs that the host emulates fp8 products. For a run whose configuration was accepted.
void warn_of_emulated_fp8();

/// Multiprocessors that matrix products are planned for, where NCCL may take @p communication of
/// a device's @p all; 0: all, with one rank, which communicates with nobody, or without such a
/// bound.
/// @throws ConfigError when no multiprocessor would be left
int multiprocessors_of_products(std::int64_t communication, int all, int ranks);

}  // namespace tessera::train

#include "detail/option_rows.hpp"

namespace tessera::config::detail {

using enum OptionType;

void add_launcher_options(OptionTable& t) {
  t.add(integer, "local_rank", -1, "local rank, passed by launchers")
      .hint("no effect: local ranks come from MPI");
  t.add(choice, "ddp_backend", {}, "communication library")
      .one_of({"mpi", "gloo", "nccl", "ccl", "xccl", "hccl"})
      .hint("no effect: NCCL where each rank has a GPU of its own, else MPI");
  char const* const own_buckets =
      "no effect: set reduce_bucket_size in the DeepSpeed configuration";
  t.add(integer, "ddp_bucket_cap_mb", {}, "gradient bucket size").hint(own_buckets);
  for (char const* name :
       {"ddp_find_unused_parameters", "ddp_broadcast_buffers", "ddp_static_graph"})
    t.add(boolean, name, {}, "option of PyTorch's DistributedDataParallel")
        .hint("no effect: every parameter has a gradient in every step");
  t.add(json, "fsdp", {},
        "FSDP's name of a ZeRO stage: full_shard (3), shard_grad_op (2), no_shard (0)")
      .shown_as("words or true");
  t.add(json, "fsdp_config", {}, "FSDP's options; each has an effect, a note or a refusal")
      .shown_as("path or JSON object");
  t.add(string, "sharded_ddp", {}, "sharding of FairScale")
      .refuse("use --deepspeed with zero_optimization.stage 2 or 3");
  t.add(json, "accelerator_config", {}, "Accelerate's configuration")
      .shown_as("path or JSON object")
      .refuse("leave it out; --deepspeed configures the engine");
  t.add(json, "parallelism_config", {}, "Accelerate's parallelism")
      .shown_as("JSON object")
      .refuse("only data parallelism is supported; leave it out");
  t.add(json, "debug", "", "PyTorch debug options")
      .shown_as("words")
      .refuse("use --log_level debug");
  for (char const* name : {"tpu_num_cores", "past_index"})
    t.add(integer, name, {}, "option of other hardware").hint("no effect");
  for (char const* name : {"xpu_backend", "mp_parameters", "ray_scope"})
    t.add(string, name, {}, "option of other hardware").hint("no effect");
  for (char const* name : {"tpu_metrics_debug", "use_mps_device"})
    t.add(boolean, name, {}, "option of other hardware").hint("no effect");
  for (char const* name : {"dispatch_batches", "split_batches"})
    t.add(boolean, name, {}, "how batches are distributed to ranks")
        .hint("no effect: each rank reads its own samples from the memory-mapped tokenized text");
}

}  // namespace tessera::config::detail

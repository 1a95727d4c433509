#include "tessera/config/reference_pages.hpp"

#include "tessera/config/arguments_table.hpp"
#include "tessera/config/deepspeed_table.hpp"
#include "tessera/config/option_text.hpp"

namespace tessera::config {
namespace {

char const* const options_head = R"(# Options of tessera-train

For users who write command lines or run files. `tessera-train [run.json] [--name value ...]` takes
the arguments of Hugging Face's `run_clm.py`, and a few of its own, which are marked below.

- `--name value` and `--name=value` are equal, and so are `-` and `_` in names. A flag without a
  value (`--bf16`) means true; `--bf16 false` and `--no_bf16` mean false. The last occurrence wins.
- `run.json` is one flat object with the same names; flags after it override it. Its `deepspeed` is
  a path or the object itself.
- Every value has an origin (default, accelerate, run file, flag, deepspeed, derived), which
  `--print_config` prints and the manifest of a checkpoint records. Later ones win.
- An unknown flag, a wrong value or a contradiction ends with exit code 64, in a file with 78. The
  message names the nearest known name.
- Names marked *accepted* may stay in a command line written for `run_clm.py`; the log says what
  differs. Names marked *no* are refused with every value but their default.
- Batch sizes, precision, optimizer, clipping and schedule may also be set in the
  [DeepSpeed configuration](deepspeed-config.md). There, `"auto"` takes the flag. A number that
  contradicts a given flag is an error; a flag that was not given gives way to the number.

This page is generated from the table the program reads.
)";

char const* const deepspeed_head = R"(# DeepSpeed configuration

For users who bring a DeepSpeed JSON: which keys Tessera knows and what it does with each.
`--deepspeed FILE` (or the object itself in a run file) takes the configuration. As DeepSpeed does,
Tessera reads it as [Hjson](https://hjson.github.io): comments (`//`, `#`, `/* */`), keys and text
without quotes, trailing commas and lines without their comma are accepted. Text without quotes
extends to the end of its line, commas and comments included.
The keys below are checked at every level: an unknown key, a wrong type or a value out of range ends
with exit code 78, and the message names the nearest known name.

- Sizes are elements, not bytes; `5e8` is an integer.
- `"auto"` is accepted where the type says so and takes the value named there, as the Hugging Face
  Trainer fills it.
- A number here that contradicts a given flag is an error that names both values. A flag that was
  not given gives way to the number. A key that is absent keeps the flag's value.
- The batch keys satisfy
  `train_batch_size = train_micro_batch_size_per_gpu * gradient_accumulation_steps * ranks`.
  A missing key is derived: from the total and one other key by division, from only the total with
  one micro-step per optimizer step, otherwise from the flags.
- An `optimizer` section has one parameter group: every parameter decays, as under the Trainer.
  Without the section biases and norms do not decay.
- A `scheduler` section replaces `--lr_scheduler_type`.
- The switch of a feature that is not supported may be written as false; its other keys have no
  effect then, unknown ones included. A block without a switch passes when its values divide and
  compress nothing, as `"tensor_parallel": {"autotp_size": 1}`.
- One message names all unknown keys.
- `data_types.grad_accum_dtype` and `torch_autocast.dtype` take the names of PyTorch too (`float32`,
  `half`, `torch.bfloat16`).
- In `zero_optimization`, `fp16`, `bf16` and the monitors, `"2"`, `"true"` and 1 count as the number
  or boolean that they spell, and `"auto"` as the default.
- Deprecated names (`cpu_offload`, `zero_optimization: true`, `bfloat16`) are translated, with a note
  in the log.
- Differences from DeepSpeed: gradients are accumulated in fp32 unless `data_types.grad_accum_dtype`
  is set; stages 1 to 3 use a true reduce-scatter; gradients are unscaled with the loss scale that
  produced them; non-finite bf16 gradients skip the step at every stage.

This page is generated from the table the program reads.
)";

}  // namespace

std::string arguments_help() {
  return help(
      argument_table(),
      "usage: tessera-train [run.json] [--name value ...]\n"
      "Trains, evaluates and samples causal language models. Takes the arguments of Hugging\n"
      "Face's run_clm.py.\n");
}

std::string arguments_page() { return markdown(argument_table(), options_head); }

std::string deepspeed_page() { return markdown(deepspeed_table(), deepspeed_head); }

}  // namespace tessera::config

// The trainer's data: tokenizer, and the cached token blocks that the ranks of a node share.
#include "tessera/core/log.hpp"
#include "tessera/train/trainer.hpp"

namespace tessera::train {
namespace {

/// Runs @p work on one rank of each node; if it fails anywhere, every rank throws the first failure.
void on_node_leaders(comm::Collectives& comm, topology::RankInfo const& info, std::function<void()> const& work) {
  std::string failure;
  if (info.local_rank == 0) {
    try {
      work();
    } catch (Error const& e) {
      failure = concat(static_cast<int>(e.code()), " ", e.what());
    }
  }
  if (comm::agree(comm, failure.empty())) return;
  for (auto const& text : comm::gather_bytes(comm, failure, 0))
    if (failure.empty()) failure = text;
  failure = comm::broadcast_bytes(comm, failure, 0);
  std::size_t const space = failure.find(' ');
  throw Error(static_cast<ExitCode>(std::stoi(failure.substr(0, space))), failure.substr(space + 1));
}

}  // namespace

void Trainer::load_data() {
  if (!source_.tokenizer_directory.empty()) tokenizer_ = data::load_tokenizer(source_.tokenizer_directory);
  if (!arguments_.do_train && !arguments_.do_eval) return;
  TESSERA_VALIDATE(tokenizer_, UsageError, "no tokenizer is named; give --tokenizer_name DIR (with tokenizer.json, or vocab.json and merges.txt)");

  data::TextDatasetConfig config;
  config.train_file = arguments_.train_file;
  config.validation_file = arguments_.validation_file;
  config.validation_split_percentage = arguments_.validation_split_percentage;
  config.block_size = arguments_.block_size;
  config.max_train_samples = arguments_.max_train_samples;
  config.max_eval_samples = arguments_.max_eval_samples;
  config.keep_linebreaks = arguments_.keep_linebreaks;
  config.need_train = arguments_.do_train;
  config.need_eval = arguments_.do_eval;
  config.cache_directory = arguments_.cache_dir.empty() ? arguments_.output_dir / ".cache" : arguments_.cache_dir;
  on_node_leaders(comm_, session_.info(), [&] { data::build_token_blocks(config, *tokenizer_); });
  auto blocks = data::open_token_blocks(config, *tokenizer_);
  train_blocks_ = std::move(blocks.train);
  eval_blocks_ = std::move(blocks.eval);
}

}  // namespace tessera::train

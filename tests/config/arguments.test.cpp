#include "tessera/config/arguments.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "scratch_files.hpp"
#include "tessera/config/option_table.hpp"
#include "tessera/core/error.hpp"

namespace tessera::config {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

/// A command line that is complete, and then @p more.
TrainingArguments parse(Words const& more) {
  Words words{"--model_name_or_path", "gpt2", "--train_file", "a.txt", "--do_train"};
  words.insert(words.end(), more.begin(), more.end());
  return parse_arguments(words);
}

template <class E>
std::string error_of(Words const& words) {
  try {
    parse_arguments(words);
  } catch (E const& e) {
    return e.what();
  }
  return "";
}

TEST(Arguments, DefaultsAreThoseOfTransformers) {
  auto const a = parse({});
  EXPECT_EQ(a.per_device_train_batch_size, 8);
  EXPECT_EQ(a.learning_rate, 5e-5);
  EXPECT_EQ(a.num_train_epochs, 3.0);
  EXPECT_EQ(a.output_dir, "trainer_output");
  EXPECT_EQ(a.save_strategy, Interval::steps);
  EXPECT_EQ(a.eval_strategy, Interval::no);
  EXPECT_EQ(a.train_sampling_strategy, Sampling::random);
  EXPECT_EQ(a.log_level, log::Level::info);
  EXPECT_FALSE(a.data_seed || a.block_size || a.threads || a.do_eval);
  EXPECT_TRUE(a.hints.empty());
  EXPECT_TRUE(a.deepspeed.document.is_null());
}

/// A part of a command line has values and contradictions, and lacks what a run needs.
TEST(Arguments, APartOfACommandLineCanBeChecked) {
  auto const a = parse_options({"--learning_rate", "1e-3"});
  EXPECT_EQ(a.learning_rate, 1e-3);
  EXPECT_THROW(require_run(a), UsageError);
  EXPECT_THROW(parse_options({"--fp16", "--bf16"}), UsageError);
  EXPECT_THROW(parse_options({"--dataloader_prefetch_factor", "2"}), UsageError);
  EXPECT_THROW(parse_options({"--learning_rat", "1e-3"}), UsageError);
  EXPECT_NO_THROW(require_run(parse({})));
  EXPECT_NO_THROW(parse_options({}));
}

/// Every argument of run_clm.py is in the table, with run_clm.py's default, and that default is
/// never refused.
TEST(Arguments, TableKnowsEveryArgumentOfRunClm) {
  auto const stored =
      ConfigTree::read(std::string(TESSERA_TEST_DATA) + "/oracles/hf_arguments.json");
  // another default says the same here: null, where transformers fills in the value we name
  std::set<std::string> const filled_later{"output_dir", "gradient_checkpointing",
                                           "activation_checkpointing", "report_to"};
  std::size_t count = 0;
  for (auto const& [name, value] : stored.as_object()) {
    auto const* option = argument_table().find(name);
    ASSERT_NE(option, nullptr) << name << " is missing";
    EXPECT_NO_THROW(checked_value(*option, value, name, Audience::key)) << name;
    ++count;
    if (filled_later.contains(name)) continue;
    bool const same = value.is_number() && option->default_value.is_number()
                          ? value.as_double() == option->default_value.as_double()
                          : value == option->default_value;
    EXPECT_TRUE(same) << name << ": " << value.dump() << " in transformers, "
                      << option->default_value.dump() << " here";
  }
  EXPECT_GT(count, 130u);
}

TEST(Arguments, EveryFullySupportedOptionReachesTheProgram) {
  std::set<std::string> reached;
  ConfigTree const described = describe(TrainingArguments{});
  for (auto const& [name, entry] : described.as_object()) reached.insert(name);
  // these set another option's field
  for (char const* name : {"warmup_ratio", "ddp_timeout", "device", "deepspeed", "full_determinism",
                           "optim_args", "report_to", "fsdp", "fsdp_config", "accelerate_config"})
    reached.insert(name);
  for (auto const& option : argument_table().options()) {
    bool const full = option.support == Support::full;
    EXPECT_TRUE(!full || reached.contains(option.name))
        << option.name << " is in the table but has no field";
    EXPECT_TRUE(full || !option.note.empty()) << option.name << " does not say why";
    EXPECT_LE(option.meaning.size(), 120u) << option.name;
  }
}

TEST(Arguments, CommandLinesOfUsersParse) {
  // gpt2-xl on one and two GPUs, as people run it
  auto const a =
      parse_arguments({"--model_name_or_path", "gpt2-xl", "--train_file", "./data/data.json",
                       "--output_dir", "./outputs", "--overwrite_output_dir", "--do_train",
                       "--do_eval", "--fp16", "--per_device_train_batch_size", "1",
                       "--per_device_eval_batch_size", "1", "--local_rank=0"});
  EXPECT_TRUE(a.fp16 && a.do_eval && a.overwrite_output_dir);
  EXPECT_EQ(a.per_device_eval_batch_size, 1);
  auto const b = parse({"--gradient_checkpointing",
                        "1",
                        "--max_train_samples",
                        "500",
                        "--num_train_epochs",
                        "1",
                        "--log_level",
                        "warning",
                        "--log_level_replica",
                        "error",
                        "--log_on_each_node",
                        "0",
                        "--tf32",
                        "0",
                        "--no_tf32",
                        "--report_to",
                        "none",
                        "--evaluation_strategy",
                        "steps",
                        "--ddp_timeout",
                        "36000",
                        "--preprocessing_num_workers",
                        "8",
                        "--dataloader_num_workers",
                        "2",
                        "--dataloader_prefetch_factor",
                        "4",
                        "--optim",
                        "adamw_torch",
                        "--gradient_checkpointing_kwargs",
                        R"({"use_reentrant": false})",
                        "--fp16",
                        "--fp16_backend",
                        "apex",
                        "--fp16_opt_level",
                        "01",
                        "--warmup_ratio",
                        "0.03",
                        "--resume_from_checkpoint",
                        "True",
                        "--torch_dtype",
                        "float16"});
  EXPECT_TRUE(b.gradient_checkpointing && b.do_eval);
  EXPECT_EQ(b.recompute, Recompute::block);
  EXPECT_EQ(*b.max_train_samples, 500);
  EXPECT_EQ(b.log_level, log::Level::warning);
  EXPECT_EQ(b.comm_timeout_seconds, 36000.0);
  EXPECT_EQ(b.collectives, "auto");
  EXPECT_EQ(b.warmup_steps, 0.03);
  EXPECT_EQ(b.resume_from_checkpoint, "true");
  EXPECT_EQ(b.eval_steps, 500.0);
  EXPECT_EQ(b.preprocessing_num_workers, 8);
  EXPECT_EQ(b.dataloader_num_workers, 2);
  EXPECT_EQ(b.dataloader_prefetch_factor, 4);
  auto const c = parse({"--include_num_input_tokens_seen", "--fsdp", "--eval_strategy", "epoch"});
  EXPECT_EQ(c.include_num_input_tokens_seen, "all");
  EXPECT_EQ(c.values.value(argument_table(), "fsdp"), ConfigTree("true"));
}

struct Mistake {
  Words words;
  char const* part;
};

TEST(Arguments, TheFirstLookReadsNoFile) {
  EXPECT_EQ(look_at_flags({"/none/run.json", "--help"}).help, "true");
  EXPECT_EQ(look_at_flags({"--help", "optim"}).help, "optim");
  EXPECT_TRUE(look_at_flags({"--version"}).version);
  EXPECT_EQ(look_at_flags({"/none/run.json", "--deepspeed", "/none/ds.json"}).help, "");
  EXPECT_THROW(look_at_flags({"--learning_rat", "1"}), UsageError);
}

TEST(Arguments, DocumentsMayComeFromElsewhere) {
  std::vector<std::string> read;
  auto const a = parse_arguments({"run.json", "--seed", "9"}, [&](std::string const& file) {
    read.push_back(file);
    return file == "run.json"
               ? ConfigTree::parse(
                     R"({"model_type": "gpt2", "tokenizer_name": "t", "train_file": "x.txt", "do_train": true, "deepspeed": "ds.json"})",
                     file)
               : ConfigTree::parse(R"({"zero_optimization": {"stage": 3}})", file);
  });
  EXPECT_THAT(read, testing::ElementsAre("run.json", "ds.json"));
  EXPECT_EQ(a.seed, 9);
  EXPECT_EQ(a.deepspeed.document.at("zero_optimization").at("stage").as_int(), 3);
}

TEST(Arguments, MistakesEndInUsageErrors) {
  Words const model{"--model_name_or_path", "gpt2"};
  auto const with_model = [&](Words more) {
    more.insert(more.begin(), model.begin(), model.end());
    return more;
  };
  for (auto const& [words, part] : std::vector<Mistake>{
           {{}, "nothing to do"},
           {with_model({"--do_train"}), "--do_train needs --train_file"},
           {with_model({"--do_eval"}), "--do_eval needs --validation_file"},
           {with_model({"--do_generate"}), "--do_generate needs --prompt"},
           {{"--do_train", "--train_file", "a.txt"}, "no model"},
           {{"--do_train", "--train_file", "a.txt", "--config_name", "c"}, "no tokenizer"},
           {with_model({"--do_train", "--train_file", "a.txt", "--config_overrides", "n_embd=8"}),
            "--config_overrides changes the sizes"},
           {with_model({"--do_train", "--train_file", "a.txt", "--fp16", "--bf16"}),
            "--fp16 and --bf16 contradict"},
           {{"--recompute", "light", "--gradient_checkpointing"},
            "--recompute light and activation checkpointing"},
           {{"--recompute", "lite"}, "one of none, light, block"},
           {{"--per_device_train_batchsize", "4"}, "did you mean --per_device_train_batch_size?"},
           {{"--learning_rate", "fast"}, "it must be a number"},
           {{"--per_device_train_batch_size", "0"}, "must be an integer of at least 1"},
           {{"--validation_split_percentage", "100"}, "from 0 to 99"},
           {{"--report_to", "comet_ml"}, "use tensorboard"},
           {{"--optim", "lomo"}, "use adamw_torch"},
           {{"--lr_scheduler_type", "cosin"}, "did you mean cosine?"},
           {{"--lr_scheduler_type", "reduce_lr_on_plateau"}, "depends on evaluation results"},
           {with_model({"--do_eval", "--train_file", "a.txt", "--lr_scheduler_kwargs", "two"}),
            "must be a JSON object"},
           {{"--dataset_name", "wikitext"}, "Use --train_file"},
           {{"--save_strategy", "best"}, "--eval_strategy is no"},
           {{"--load_best_model_at_end", "--eval_strategy", "epoch"}, "--save_strategy steps"},
           {{"--load_best_model_at_end", "--eval_strategy", "steps", "--eval_steps", "200"},
            "not a multiple of --eval_steps 200"},
           {{"--early_stopping_patience", "2"}, "--eval_strategy is no"},
           {{"--metric_for_best_model", "bleu", "--save_strategy", "best", "--eval_strategy",
             "steps"},
            "loss, perplexity and accuracy"},
           {{"--lora_r", "4"}, "--lora_r has no effect without --use_peft_lora"},
           {{"--load_in_4bit"}, "--load_in_4bit keeps frozen weights as codes"},
           {{"--use_peft_lora", "--load_in_4bit", "--load_in_8bit"}, "exclude each other"},
           {{"--use_peft_lora", "--bnb_4bit_use_double_quant"},
            "--bnb_4bit_use_double_quant has no effect without --load_in_4bit"},
           {{"--use_peft_lora", "--load_in_4bit", "--bnb_4bit_quant_type", "fp4"}, "use nf4"},
           {{"--adapter", "a"}, "--adapter needs the model that it adapts"},
           {with_model({"--adapter", "a", "--lora_dropout", "0.1"}),
            "--lora_dropout cannot go with --adapter"},
           {{"--packing"}, "--packing is an option of supervised fine-tuning; add --task sft"},
           {{"--task", "sft", "--append_eos"}, "cannot go with --task sft; leave it out"},
           {{"--task", "sft", "--packing", "--max_length", "0"}, "give --max_length"},
           {{"--task", "sft", "--group_by_length"}, "--group_by_length"},
           {{"--task", "sft", "--loss_type", "dft", "--label_smoothing_factor", "0.1"},
            "has no label smoothing"},
           {{"--beta", "1"}, "--beta is an option of a training on preferences; add --task dpo"},
           {{"--task", "sft", "--loss_type", "ipo"}, "ipo is a loss of preferences"},
           {{"--task", "dpo", "--loss_type", "dft"}, "dft is a loss of supervised fine-tuning"},
           {{"--task", "dpo", "--label_smoothing", "0.1"}, "sigmoid has none"},
           {{"--task", "dpo", "--loss_type", "robust", "--label_smoothing", "0.5"}, "below 0.5"},
           {{"--task", "dpo", "--packing"}, "--packing cannot go with --task dpo"},
           {{"--include_num_input_tokens_seen", "some"}, "no, all, non_padding"},
           {{"train.py", "--bf16"}, "a run file ends in .json"},
           {{"a.json", "b.json"}, "only one run file"},
       })
    EXPECT_THAT(error_of<UsageError>(words), HasSubstr(part)) << part;
}

TEST(Arguments, HelpAndVersionNeedNothingElse) {
  EXPECT_EQ(parse_arguments({"--help"}).help, "true");
  EXPECT_EQ(parse_arguments({"-h"}).help, "true");
  EXPECT_TRUE(parse_arguments({"--version"}).version);
  EXPECT_THAT(arguments_help(),
              AllOf(HasSubstr("--per_device_train_batch_size N"), HasSubstr("(default: 8)")));
}

TEST(Arguments, RunFileWithFlagsOverIt) {
  ScratchFiles files;
  auto const ds = files.write("ds.json", "{\"zero_optimization\": {\"stage\": 2}, // comment\n}");
  auto const run = files.write(
      "run.json",
      R"({"model_name_or_path": "gpt2", "train_file": "a.txt", "do_train": true, "learning_rate": 1e-4,
      "max_steps": 10, "report_to": [], "fsdp": "", "block_size": null, "deepspeed": {"zero_optimization": {"stage": 3}}})");
  auto const a = parse_arguments({run, "--max-steps", "20"});
  EXPECT_EQ(a.max_steps, 20);
  EXPECT_EQ(a.learning_rate, 1e-4);
  EXPECT_EQ(a.values.origin("max_steps"), Origin::flag);
  EXPECT_EQ(a.values.origin("learning_rate"), Origin::run_file);
  EXPECT_EQ(a.deepspeed.document.at("zero_optimization").at("stage").as_int(), 3);
  EXPECT_EQ(parse_arguments({run, "--deepspeed", ds})
                .deepspeed.document.at("zero_optimization")
                .at("stage")
                .as_int(),
            2);
  auto const described = describe(a);
  EXPECT_EQ(described.at("max_steps").dump(), R"({"value":20,"origin":"flag"})");
  EXPECT_EQ(described.at("seed").dump(), R"({"value":42,"origin":"default"})");
}

TEST(Arguments, RunFileMistakesAreConfigErrors) {
  ScratchFiles files;
  auto const error = [&](std::string const& text) {
    return error_of<ConfigError>({files.write("run.json", text)});
  };
  EXPECT_THAT(error(R"({"learning_rat": 1})"),
              AllOf(HasSubstr("run.json: unknown key learning_rat"),
                    HasSubstr("did you mean learning_rate?")));
  EXPECT_THAT(error(R"({"max_steps": "ten"})"), HasSubstr("it must be an integer"));
  EXPECT_THAT(error(R"({"seed": -1})"), HasSubstr("at least 0"));
  EXPECT_THAT(error(R"({"push_to_hub": true})"), HasSubstr("nothing is uploaded to the Hub"));
  EXPECT_THAT(error_of<DataError>({files.write("run.json", "{\"a\": ")}),
              HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of<IoError>({(files.directory() / "none.json").string()}),
              HasSubstr("No such file"));
}

TEST(Arguments, StepShares) {
  EXPECT_EQ(step_interval(25, 1000), 25);
  EXPECT_EQ(step_interval(0.1, 1001), 101);
  EXPECT_EQ(step_interval(0.001, 10), 1);
  EXPECT_EQ(parse({"--warmup_ratio", "0.5", "--warmup_steps", "3"}).warmup_steps, 3.0);
}

}  // namespace
}  // namespace tessera::config

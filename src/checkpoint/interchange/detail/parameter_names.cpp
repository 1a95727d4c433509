#include "interchange/detail/parameter_names.hpp"

namespace tessera::checkpoint::detail {
namespace {

/// The head of GPT-NeoX in files of Hugging Face, and as transformers 5 calls it in memory, where
/// DeepSpeed finds it.
constexpr char const *head_in_files = "embed_out.weight", *head_in_memory = "lm_head.weight";

}  // namespace

std::vector<std::string> possible_names(memory::ParameterSpec const& parameter) {
  std::vector<std::string> out;
  auto names = parameter.aliases;
  names.insert(names.begin(), parameter.name);
  if (parameter.name == head_in_files) names.emplace_back(head_in_memory);
  for (std::string const matrix :
       {".lora_A.", ".lora_B."})  // PEFT's name of the adapter, in memory
    if (auto const at = parameter.name.rfind(matrix); at != std::string::npos)
      names.push_back(std::string(parameter.name).insert(at + matrix.size(), "default."));
  for (auto const& name : names) {
    out.push_back(name);
    out.push_back("module." + name);
    for (std::string const prefix : {"transformer.", "model.", "gpt_neox."}) {
      if (name.rfind(prefix, 0) == 0) out.push_back(name.substr(prefix.size()));
      out.push_back(prefix + name);
    }
  }
  return out;
}

bool is_peft_adapter(std::string const& name) {
  return name.find("base_model.model.") != std::string::npos &&
         (name.find(".lora_A.") != std::string::npos || name.find(".lora_B.") != std::string::npos);
}

bool is_saved_constant(std::string const& name) {
  for (char const* end : {".attn.bias", ".attn.masked_bias", ".attention.bias",
                          ".attention.masked_bias", ".rotary_emb.inv_freq"})
    if (name.ends_with(end)) return true;
  return false;
}

}  // namespace tessera::checkpoint::detail

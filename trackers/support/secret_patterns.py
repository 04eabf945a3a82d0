"""Table of secrets' patterns of known vendors, each with keywords of which a text must contain one.

Most forms are those of gitleaks 8.30 (https://github.com/gitleaks/gitleaks, config/gitleaks.toml), made shorter: a form
here is what a secret begins with and how long it is at least, so that a vendor's longer tokens are masked whole. Those
of trackers, model hubs and model APIs are from the vendors' own pages. Every pattern is linear in the text: what
follows its literal words is one class of characters.

gitleaks is under the MIT License, Copyright (c) 2019 Zachary Rice: Permission is hereby granted, free of charge, to any
person obtaining a copy of this software and associated documentation files (the "Software"), to deal in the Software
without restriction, including without limitation the rights to use, copy, modify, merge, publish, distribute,
sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is furnished to do so,
subject to the following conditions: The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software. THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS
OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY,
WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE
OR OTHER DEALINGS IN THE SOFTWARE.
"""

from __future__ import annotations

import functools
import re

_W = r"[\w\-]"
_A = r"[A-Za-z0-9]"
_H = r"[a-fA-F0-9]"
_B = r"[A-Za-z0-9+/]"

FORMS: tuple[tuple[str, str, str], ...] = (
    # Trackers, model hubs and model APIs.
    ("W&B", "wandb_v1_", rf"wandb_v1_{_W}{{20,}}"),
    ("W&B, a server of one's own", "local-", r"local-[a-f0-9]{40}"),
    ("Hugging Face", "hf_", rf"hf_{_A}{{30,}}"),
    ("Hugging Face, organisation", "api_org_", rf"api_org_{_A}{{30,}}"),
    ("Anthropic, OpenAI, DeepSeek, OpenRouter", "sk-", rf"sk-(?=[\w\-]{{0,200}}\d){_W}{{20,}}"),
    ("Groq", "gsk_", rf"gsk_{_A}{{30,}}"),
    ("xAI", "xai-", rf"xai-{_A}{{30,}}"),
    ("Perplexity", "pplx-", rf"pplx-{_A}{{30,}}"),
    ("Replicate", "r8_", rf"r8_{_A}{{30,}}"),
    ("Fireworks", "fw_", rf"fw_{_A}{{20,}}"),
    ("NVIDIA", "nvapi-", rf"nvapi-{_W}{{30,}}"),
    ("LangSmith", "lsv2_", rf"lsv2_(?:pt|sk)_{_A}{{20,}}(?:_{_A}+)?"),
    ("Pinecone", "pcsk_", rf"pcsk_{_W}{{30,}}"),
    ("Anyscale", "esecret_", rf"esecret_{_A}{{20,}}"),
    ("Modal", "as-", rf"as-{_A}{{22}}"),
    ("RunPod", "rpa_", rf"rpa_{_A}{{30,}}"),
    ("Databricks", "dapi", r"dapi[a-f0-9]{32}(?:-\d)?"),
    ("Prefect", "pnu_ pnb_", rf"pn[ub]_{_A}{{30,}}"),
    ("Hugging Face, OAuth", "hf_oauth_", r"hf_oauth_[\w\-.]{20,}"),
    ("Tavily", "tvly-", rf"tvly-(?:dev-|prod-)?{_A}{{20,}}"),
    ("Kaggle", "kgat_", rf"KGAT_{_A}{{24,}}"),
    ("Together", "tgp_v1_", rf"tgp_v1_{_W}{{30,}}"),
    ("Cerebras", "csk-", rf"csk-{_A}{{30,}}"),
    ("Jina", "jina_", r"jina_\w{40,}"),
    ("Voyage", "pa- al-", rf"(?:pa|al)-{_W}{{40,}}"),
    ("Firecrawl", "fc-", rf"fc-{_H}{{32}}"),
    ("ElevenLabs and others", "sk_", rf"sk_{_H}{{32,}}"),
    ("Zhipu", ".", r"[0-9a-f]{32}\.[A-Za-z0-9]{16}"),
    ("fal", ":", r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}:[0-9a-f]{32}"),
    ("Upstage", "up_", rf"up_{_A}{{28}}"),
    ("Chutes", "cpk_", r"cpk_[0-9a-f]{32}\.[\w.]{32,}"),
    # Clouds.
    ("AWS, key id", "a3t akia asia abia acca", r"(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}"),
    ("AWS, session token", "iqoj fwog fqog", r"(?:IQoJ|FwoG|FQoG)[A-Za-z0-9+/%]{80,}={0,2}"),
    ("AWS MWS and Login", "amzn", r"amzn\.mws\.[0-9a-f\-]{30,}|amzn1\.oa2-cs\.v1\.[0-9a-f]{40,}"),
    ("Google refresh token", "1//", rf"1//\d{_W}{{20,}}"),
    ("Google authorization code", "4/0a", rf"4/0A{_W}{{40,}}"),
    ("Google Cloud, HMAC", "goog", r"GOOG[A-Z0-9]{20,}"),
    ("Firebase", "aaaa", rf"AAAA{_W}{{7}}:{_W}{{100,}}"),
    ("Yandex", "t1. aqvn y0_", rf"t1\.[\w\-]{{20,}}={{0,2}}\.[\w\-]{{80,}}={{0,2}}|AQVN{_W}{{30,}}|y0_{_W}{{30,}}"),
    ("Baidu", "bce-v3/altak-", rf"bce-v3/ALTAK-{_A}{{16,}}/{_H}{{32,}}"),
    ("AWS Bedrock", "absk", rf"ABSK{_B}{{60,}}=*"),
    ("AWS Bedrock, short-lived", "bedrock-api-key-", r"bedrock-api-key-[\w+/=\-]{20,}"),
    ("Google API", "aiza", rf"AIza{_W}{{30,}}"),
    ("Google OAuth client", "gocspx-", rf"GOCSPX-{_W}{{20,}}"),
    ("Google access token", "ya29.", rf"ya29\.{_W}{{20,}}"),
    ("Azure AD client", "q~", r"[a-zA-Z0-9_~.]{3}\dQ~[a-zA-Z0-9_~.\-]{31,}"),
    ("Azure storage or service bus", "accountkey= accesskey= signature=",
     r"(?i:(?<=accountkey=)|(?<=accesskey=)|(?<=accesssignature=))[A-Za-z0-9+/%=&\-_.:]{16,}"),
    ("Alibaba", "ltai", rf"LTAI{_A}{{16,}}"),
    ("Tencent", "akid", rf"AKID{_A}{{32}}"),
    ("DigitalOcean", "do", rf"do[opr]_v1_{_H}{{40,}}"),
    ("Heroku", "hrku-", rf"HRKU-{_W}{{30,}}"),
    ("Fly.io", "fo1_ fm1 fm2_", r"(?:fo1_|fm1[ar]_|fm2_)[\w+/=,\-]{40,}"),
    ("Scalingo", "tk-us-", rf"tk-us-{_W}{{40,}}"),
    ("Cloudflare origin", "v1.0-", r"v1\.0-[a-f0-9]{24}-[a-f0-9]{100,}"),
    ("Supabase", "sbp_ sb_secret_", rf"sbp_(?:v0_)?{_H}{{32,}}|sb_secret_{_W}{{20,}}"),
    ("Neon", "napi_ npg_", rf"napi_{_A}{{40,}}|npg_{_A}{{12,}}"),
    ("MongoDB Atlas", "mdb_sa_sk_", rf"mdb_sa_sk_{_W}{{30,}}"),
    ("Cloudflare", "cfut_ cfat_ cfk_", rf"cf(?:[ua]t|k)_{_A}{{40,}}"),
    ("Vercel", "vcp_ vci_ vca_ vcr_ vck_ vercel_", rf"(?:vc[piark]|vercel_\w{{1,12}})_{_A}{{24,}}"),
    ("Render", "rnd_", rf"rnd_{_A}{{24,}}"),
    ("Netlify", "nfp_", rf"nfp_{_A}{{30,}}"),
    ("PlanetScale", "pscale_", r"pscale_(?:tkn|oauth|pw)_[\w=.\-]{30,}"),
    ("ClickHouse Cloud", "4b1d", rf"4b1d{_A}{{38}}"),
    ("Tailscale", "tskey-", rf"tskey-{_W}{{16,}}"),
    ("HashiCorp Vault", "hvs. hvb. hvr.", rf"hv[sbr]\.{_W}{{20,}}"),
    ("HashiCorp Vault, older", "s. b.", rf"[sb]\.(?=[A-Za-z]{{0,23}}\d){_A}{{24}}(?![A-Za-z0-9])"),
    ("HashiCorp Terraform", "atlasv1", r"[a-zA-Z0-9]{14}\.atlasv1\.[\w\-=]{60,}"),
    ("Pulumi", "pul-", rf"pul-{_H}{{40}}"),
    ("Doppler", "dp.", r"dp\.(?:pt|st|ct|sa|scim|audit)\.[\w.\-]{30,}"),
    ("Infracost", "ico-", rf"ico-{_A}{{32}}"),
    ("OpenShift", "sha256~", rf"sha256~{_W}{{43}}"),
    ("Age", "age-secret-key-1", r"AGE-SECRET-KEY-1[A-Z0-9]{50,}"),
    ("1Password", "a3-", r"A3-[A-Z0-9]{6}-[A-Z0-9]{6,11}-(?:[A-Z0-9]{5}-){2,3}[A-Z0-9]{5}"),
    ("1Password, service account", "ops_", r"ops_eyJ[\w+/\-]{60,}=*"),
    # Code hosts and registries.
    ("GitHub", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[\w.\-]{30,}"),
    ("GitHub, fine-grained", "github_pat_", r"github_pat_\w{36,}"),
    ("GitLab", "gl", rf"gl(?:pat|dt|ft|rt|ptt|oas|cbt|ffct|imt|agent|soat|rtr|wt)-{_W}[\w.\-]{{15,}}"),
    ("GitLab, runner", "gr1348941", rf"GR1348941{_W}{{16,}}"),
    ("GitLab, session", "_gitlab_session=", rf"(?<=_gitlab_session=){_A}{{20,}}"),
    ("Bitbucket", "atbb", rf"ATBB{_A}{{20,}}"),
    ("Atlassian", "atatt3 atctt3", r"AT[AC]TT3[\w\-=]{40,}"),
    ("Bitbucket Data Center", "bbdc-", r"BBDC-[\w+/@\-]{40,}"),
    ("CircleCI", "ccipat_", rf"CCIP[AR][TJ]_{_A}{{16,}}_{_H}{{40}}"),
    ("Buildkite", "bkua_", rf"bk(?:ua|at|ct|rt|pt|et)_{_A}{{30,}}"),
    ("Sonar", "squ_ sqp_ sqa_", rf"sq[upa]_{_H}{{40}}"),
    ("CodeSandbox", "csb_", rf"csb_(?:v1_|api_)?{_W}{{24,}}"),
    ("Hex", "hexpm_", r"hexpm_[\w+/]{40,}"),
    ("npm", "npm_", rf"npm_{_A}{{30,}}"),
    ("PyPI", "pypi-", rf"pypi-AgE{_W}{{16,}}"),
    ("PyPI, others", "pypi-", rf"pypi-{_W}{{60,}}"),
    ("RubyGems", "rubygems_", rf"rubygems_{_H}{{40,}}"),
    ("Clojars", "clojars_", rf"CLOJARS_{_A}{{40,}}"),
    ("Docker Hub", "dckr_", rf"dckr_(?:pat|oat)_{_W}{{20,}}"),
    ("Artifactory", "akcp cmvmd", rf"(?:AKCp|cmVmd){_A}{{50,}}"),
    ("Sourcegraph", "sgp_", rf"sgp_(?:{_A}+_)?{_H}{{40}}"),
    ("Harness", "pat. sat.", rf"[ps]at\.{_W}{{22}}\.{_A}{{24}}\.{_A}{{20}}"),
    ("Octopus Deploy", "api-", r"API-[A-Z0-9]{26}"),
    # Services.
    ("Slack", "xox", r"xox[a-z](?:\.xox[a-z])?-[\w\-]{10,}"),
    ("Slack, app", "xapp-", r"xapp-[\w\-]{10,}"),
    ("Slack, hook", "hooks.slack.com", r"(?<=hooks\.slack\.com/)[\w/+\-]{12,}"),
    ("Discord, hook", "/api/webhooks/", r"(?<=/api/webhooks/)\d+/[\w\-]{16,}"),
    ("Discord, bot", ".", r"[MNO][\w\-]{23,25}\.[\w\-]{6}\.[\w\-]{27,}"),
    ("Teams, hook", "webhook.office.com outlook.office.com/webhook",
     r"(?:(?<=webhook\.office\.com/)|(?<=outlook\.office\.com/webhook/))[\w@/\-]{16,}"),
    ("Telegram", ":aa", r"(?:bot)?\d{8,10}:AA[\w\-]{32,}"),
    ("Stripe", "sk_ rk_ whsec_", r"(?:(?:sk|rk)_(?:test|live|prod)_|whsec_)[A-Za-z0-9]{10,}"),
    ("Square", "sq0 eaaa", rf"(?:sq0[a-z]{{3}}-|EAAA){_W}{{22,}}"),
    ("Shopify", "shp", rf"shp(?:at|ca|pa|ss)_{_H}{{32}}"),
    ("Shippo", "shippo_", rf"shippo_(?:live|test)_{_H}{{30,}}"),
    ("Flutterwave", "flwseck", rf"FLWSECK(?:_TEST)?-{_W}{{12,}}"),
    ("Duffel", "duffel_", r"duffel_(?:test|live)_[\w\-=]{30,}"),
    ("EasyPost", "ezak eztk", rf"EZ[AT]K{_A}{{50,}}"),
    ("Twilio", "sk", r"SK[0-9a-fA-F]{32}"),
    ("SendGrid", "sg.", r"SG\.[\w\-]{16,}\.[\w\-]{16,}"),
    ("Brevo", "xkeysib- xsmtpsib-", r"x(?:keysib|smtpsib)-[\w\-]{40,}"),
    ("Mailgun", "key-", r"key-[0-9a-f]{32}"),
    ("Mailchimp", "-us", r"[0-9a-f]{32}-us\d{1,2}"),
    ("Notion", "ntn_ secret_", rf"(?:ntn_|secret_){_A}{{40,}}"),
    ("Linear", "lin_", rf"lin_(?:api|oauth)_{_A}{{30,}}"),
    ("Figma", "figd_", rf"figd_{_W}{{30,}}"),
    ("Airtable", "pat", rf"pat{_A}{{14}}\.[a-f0-9]{{64}}"),
    ("Postman", "pmak-", rf"PMAK-{_H}{{24}}-{_H}{{30,}}"),
    ("ReadMe", "rdme_", r"rdme_[a-z0-9]{60,}"),
    ("Grafana", "glc_ glsa_", r"gl(?:c|sa)_[\w+/=]{32,}"),
    ("Grafana, older", "eyjrijoi", rf"eyJrIjoi{_B}{{40,}}=*"),
    ("New Relic", "nrak- nrii- nrjs- nraa- nriq-", rf"NR(?:AK|II|JS|AA|IQ)-{_W}{{16,}}"),
    ("Dynatrace", "dt0c01.", rf"dt0c01\.{_A}{{24}}\.{_A}{{60,}}"),
    ("Sentry", "sntry", r"sntry[su]_[\w+/=\-]{40,}"),
    ("Typeform", "tfp_", r"tfp_[\w.\-]{40,}"),
    ("Facebook", "eaa", rf"EAA[A-Z]{_A}{{60,}}"),
    ("Facebook, app", "| %", r"\d{15,16}(?:\||%(?:7[Cc])?)[\w\-]{27,40}"),
    ("Authress", ".acc",
     r"(?:sc|ext|scauth|authress)_[a-z0-9]{5,30}\.[a-z0-9]{4,6}\.acc[_\-][a-z0-9\-]{10,32}\.[\w+/=\-]{30,}"),
    ("PostHog", "phx_ phs_", rf"ph[xs]_{_W}{{30,}}"),
    ("Datadog", "ddp_ ddw_", rf"dd[pw]_{_A}{{30,}}"),
    ("Dropbox", "sl.", rf"sl\.(?:u\.)?{_W}{{100,}}"),
    ("Razorpay", "rzp_", rf"rzp_(?:live|test)_{_A}{{14,}}"),
    ("Retool, n8n, Apify", "retool_ n8n_ apify_", rf"(?:retool|n8n|apify)_api_{_A}{{24,}}"),
    ("Rootly, Shortcut and others", "rootly_ shltm_ flb_live_ slk_", rf"(?:rootly|shltm|flb_live|slk)_{_W}{{20,}}"),
    ("Adafruit", "aio_", rf"aio_{_A}{{28}}"),
    ("HubSpot", "pat-", r"pat-(?:eu|na)\d-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    ("Riot", "rgapi-", r"RGAPI-[0-9a-f\-]{36}"),
    ("Salesforce", "3mvg 5aep861 00d", r"3MVG[\w.+/=]{80,}|5AEP861[\w.=]{80,}|00D[A-Za-z0-9]{12,15}![\w.]{80,}"),
    ("Pinata", "pina_", rf"pina_{_W}{{50,}}"),
    ("Zapier and Tines, hook", "hooks.zapier.com .tines.com/webhook",
     r"(?:(?<=hooks\.zapier\.com/)|(?<=\.tines\.com/))[\w/\-]{20,}"),
    ("Frame.io", "fio-u-", r"fio-u-[\w\-=]{40,}"),
    ("Adobe", "p8e-", rf"p8e-{_A}{{32}}"),
    ("Defined Networking", "dnkey-", r"dnkey-[\w\-=]{26,}"),
    ("42", "s-s4t2", rf"s-s4t2(?:ud|af)-{_H}{{64}}"),
    ("SettleMint", "sm_", rf"sm_[aps]at_{_A}{{16,}}"),
    ("MaxMind", "_mmk", rf"{_A}{{6}}_{_A}{{29}}_mmk"),
    ("Docker Swarm", "swmtkn- swmkey-", rf"SWM(?:TKN|KEY)-1-{_W}{{40,}}"),
    ("LlamaIndex", "llx-", rf"llx-{_W}{{40,}}"),
    ("WunderGraph", "cosmo_", rf"cosmo_{_H}{{32}}"),
    ("NuGet", "oy2", r"oy2[a-z0-9]{43}(?![a-z0-9])"),
    ("Braintree", "access_token$", r"access_token\$(?:production|sandbox)\$[a-z0-9]{8,}\$[0-9a-f]{32}"),
    ("Akamai", "akab-", r"akab-[a-z0-9]{16}-[a-z0-9]{16}"),
    ("Instagram", "igq", rf"IGQ[A-Z]{{1,4}}{_W}{{60,}}"),
    ("X", "aaaaaaaaaaaaaaaa", r"A{20,22}[\w%]{60,}"),
    ("New Relic, older", "nrbr- nral", rf"NRBR-{_H}{{19}}|(?:[a-z]{{2}}\d\dx{{1,2}})?{_H}{{26,40}}NRAL"),
    ("PostHog, personal and refresh", "pha_ phr_", rf"ph[ar]_{_W}{{30,}}"),
    ("Postman, access", "pmat-", rf"PMAT-{_A}{{24,}}"),
    ("Mailgun, newer", "-", r"[0-9a-f]{32}-[0-9a-f]{8}-[0-9a-f]{8}"),
    ("NATS", "su", r"SU[A-Z2-7]{56}"),
    ("Dropbox, long-lived", "aaaaaaaaaa", rf"{_A}{{11}}AAAAAAAAAA{_W}{{43}}"),
    ("Azure, keys of this form", "jqqj9", rf"{_A}{{52}}JQQJ9{_A}{{20,}}={{0,2}}"),
    ("Azure DevOps", "azdo", rf"{_A}{{70,}}AZDO{_A}{{4}}"),
    ("Dependency-Track", "odt_", rf"odt_{_A}{{32,}}"),
    ("Twitch, stream", "live_", rf"live_\d{{8,12}}_{_A}{{28,}}"),
    ("Hashes of passwords", "$1$ $2 $5$ $6$ $7$ $8$ $y$ $argon2",
     r"\$(?:[15678y]|2[abxy]|argon2\w{1,2})\$[\w./$=,+\-]{20,}"),
    ("NTLM", "tlrmtvntuaa", rf"TlRMTVNTUAA{_B}{{40,}}={{0,2}}"),
    # Of no vendor.
    ("JSON web token", "ey", r"ey[JA][\w\-]{10,}\.[\w\-/+]{10,}\.[\w\-/+]{6,}={0,2}"),
    ("JSON web token in base64", "zxlk", rf"ZXlK{_B}{{60,}}={{0,2}}"),
    ("Private key in base64", "ls0tls1crudjti",
     rf"LS0tLS1CRUdJTi(?:BSU0Eg|BFQyBQ|BPUEVO|BQUklWQVRF|BFTkNSWVBURUQ|BEU0Eg){_B}{{40,}}={{0,2}}"),
    ("RFC 8959", "secret-token:", r"secret-token:[\w\-.~%!$&'()*+,;=:@]{8,}"),
    # What many vendors' secrets look like: whose, what for, and random letters and digits.
    ("A vendor's, by its make-up",
     "sk_ sk- rk_ ak_ pat_ pat- key_ key- secret_ secret- sec_ token_ token- api_ oauth_ auth_",
     r"(?:[A-Za-z0-9]{1,12}[_\-]){0,3}(?:[srap]k|pat|(?:api|sub)?_?key|secret|sec|token|api|oauth|auth)[_\-]"
     r"(?:[A-Za-z0-9]{1,8}_)?(?=[a-z0-9]{0,24}[A-Z])(?=[A-Z0-9]{0,24}[a-z])(?=[A-Za-z]{0,24}\d)[A-Za-z0-9]{24,}"),
    ("JSON in base64, as Neptune's", "eyj", rf"eyJ{_B}{{60,}}={{0,2}}"),
)  # fmt: skip
"""Vendor, words (in small letters, separated by spaces) of which one must be there, and the form."""


_BEFORE = r"(?<![A-Za-z0-9])"
_BEFORE_COLOURED = r"(?:(?<![A-Za-z0-9])|(?<=\x1b\[\dm)|(?<=\x1b\[\d\dm)|(?<=\x1b\[\d;\d\dm))"
"""No letter or digit, but for that of a terminal's colour."""


@functools.cache
def _compiled(index: int, coloured: bool) -> re.Pattern[str]:
    form = FORMS[index][2]
    before = "" if form.startswith(("(?<=", "(?i:(?<=")) else _BEFORE_COLOURED if coloured else _BEFORE
    return re.compile(f"{before}(?:{form})")


_WORDS = tuple((word, index) for index, (_, words, _) in enumerate(FORMS) for word in words.split())


_LONG = 4000
"""Characters of a text from which on a form is looked for only in the lines that have its words: none spans lines."""


def hide(text: str, mask: str) -> str:
    """Text with every secret of a known form replaced."""
    small = text.lower()
    tried = dict.fromkeys(index for word, index in _WORDS if word in small)
    coloured = "\x1b[" in text
    for index in tried:
        pattern = _compiled(index, coloured)
        if len(text) < _LONG or len(small) != len(text):
            text = pattern.sub(mask, text)
            continue
        hidden = _hide_in_lines(pattern, FORMS[index][1].split(), text, small, mask)
        if hidden is not text:
            text, small = hidden, hidden.lower()
    return text


def _hide_in_lines(pattern: re.Pattern[str], words: list[str], text: str, small: str, mask: str) -> str:
    """Text with a form replaced in its lines that have one of the words. small: the text in small letters."""
    parts, position, done = [], 0, 0
    places = {word: small.find(word) for word in words}
    while places := {word: place for word, place in places.items() if place >= 0}:
        first = min(places.values())
        begin, end = text.rfind("\n", done, first) + 1 or done, text.find("\n", first)
        done = len(text) if end < 0 else end
        line, count = pattern.subn(mask, text[begin:done])
        if count:
            parts += [text[position:begin], line]
            position = done
        places = {word: place if place >= done else small.find(word, done) for word, place in places.items()}
    return "".join([*parts, text[position:]]) if parts else text

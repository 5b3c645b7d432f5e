"""Words about what a reader can be told to do, with what, and unseen by whom.

Each text is named like the idea that its words stand for; see `component.agent.scanner_words`.
"""

from typing import Final

REVEAL: Final = """
reveal print output repeat show display disclose leak recite expose dump list
give_me tell_me write_out spell_out what_are what_is export zeige zeig zeigen_sie
nenne nennen_sie gib geben_sie verrate wiederhole drucke offenbare revele revelez
affiche affichez montre repete donne muestra muestre revela repite imprime escribe
mostra mostrate rivela stampa ripeti mostre imprima repita exiba toon laat_zien
onthul herhaal geef покажи выведи раскрой повтори
напечатай напиши 输出 显示 透露 告诉我 打印 重复 泄露 出力 表示 公開
教えて
"""

SEND: Final = """
send post forward mail email e_mail upload append submit transmit exfiltrate put
include request fetch encode place attach embed share leak pass sende senden_sie
sendet schicke schick schicken_sie leite ubermittle poste hange envoie envoyez
transmets transmettez ajoute transfere envia envie manda mande reenvia publica sube
adjunta invia inviate mandate spedisci inoltra carica allega encaminhe anexe stuur
verstuur zend plaats отправь отправьте пошли перешли
передай загрузи 发送 发给 发到 转发 上传 提交 附加 送信 転送 送って
アップロード
"""

SECRET: Final = """
password* passphrase api_key* key keys token* secret* credential* conversation
history chat_history inbox contacts address_book cookie* card_number* credit_card*
private_data private_key* environment_variables ssh mails emails messages notes data
document details home_address confidential calendar chat configuration passwort*
kennwort* zugangsdaten schlussel gesprachsverlauf* chatverlauf nachrichten
mot_de_passe mots_de_passe historique cle cles courriels contrasena* clave*
historial conversacion correos cronologia conversazione chiave chiavi senha*
conversa historico chave chaves wachtwoord* chatgeschiedenis gespreksgeschiedenis
sleutel* gesprek парол* переписк* ключ* истори* данные
密码 密钥 聊天记录 对话记录 邮件 历史 地址 パスワード 履歴 会話 鍵 メール
"""  # noqa: S105 - words, no secret

PLACE: Final = """
 webhook pastebin to_the_address to_this_address to_our_server query_string
to_this_url in_the_url
"""

CALL: Final = """
call invoke run execute use trigger launch open rufe nutze benutze verwende fuhre
starte rufen_sie appelle appelez utilise utilisez executez lance llama usa utiliza
ejecuta invoca chiama esegui utilizza chame utilize roep gebruik voer вызови
используй запусти выполни 调用 运行 执行 使用 呼び出し 実行
"""

TOOL: Final = """
tool tools function command shell terminal script plugin skill werkzeug*
mail_werkzeug funktion befehl outil* fonction commande herramienta* funcion
strumento strumenti funzione ferramenta* funcao gereedschap functie
инструмент* функци* 工具 函数 ツール 関数
"""

ASK: Final = """
confirmation asking permission approval ask confirm question consult ruckfrage
nachzufragen bestatigung nachfrage confirmer demander preguntar confirmacion
confirmar chiedere conferma perguntar confirmacao bevestiging vragen
подтверждени* спрашивая 确认 询问 確認
"""

HARM: Final = """
delete wipe transfer_money transfer_funds transfer pay wire grant_access grant
approve push disable remove drop_table install purchase buy rm rm_rf delete_file*
delete_account send_mail invite archive close change add accept losche loeschen
uberweise installiere zahle supprime supprimez vire paie installe borra elimina
transfiere paga instala cancella trasferisci apague exclua transfira pague verwijder
betaal installeer удали переведи оплати 删除 转账 支付 安装 削除
送金 支払
"""

TELL: Final = """
tell mention inform report reveal notify say disclose alert hint sag sage erwahne
erwahnen verrate informiere melde mitteile sagen dis dites parle parler mentionne
informe informer digas diga menciones mencione cuentes informes avises decir dire
menzionare informare dica conte vertel zeg noem meld говори сообщай
рассказывай упоминай сообщайте 告诉 透露 提及 通知 说
言わ 伝え 知らせ 話さ
"""

SECRETLY: Final = """
silently secretly quietly covertly between_us without_informing without_telling
without_notifying without_mentioning hide_this_from act_as_though act_as_if heimlich
unbemerkt en_secret discretement en_parler en_secreto a_escondidas di_nascosto
em_segredo stiekem тайно незаметно 言わないで 教えないで 伝えないで
知らせないで 話さないで 悄悄 秘密地 こっそり 密かに
"""

SAY: Final = """
say write answer reply respond tell recommend rate rank praise describe state
mention claim promote endorse treat render summarise summarize include insert mark
report start end give score output act stop agree insist add collect sage schreibe
antworte bewerte bewerten_sie empfiehl empfehlen_sie schreib behaupte dis ecris
reponds repondez recommande indiquez ecrivez affirmez evalue di escribe responde
recomienda califica indica scrivi rispondi raccomanda consiglia valuta escreva
responda recomende diga avalie aprove schrijf antwoord zeg beveel скажи
напиши ответь отвечай рекомендуй оцени 写 回答
回复 推荐 评价 说 書い 答え 推薦 紹介
"""

REMEMBER: Final = """
remember memorize save_to store_in add_to_your merk_dir speichere souviens_toi
enregistre recuerda guarda ricorda salva lembre guarde onthoud запомни 记住
覚えて
"""

MEMORY: Final = """
your_memory to_memory long_term_memory future_conversations following_memory
all_future deinem_gedachtnis ta_memoire tu_memoria tua_memoria sua_memoria
je_geheugen памят* 记忆 記憶
"""
